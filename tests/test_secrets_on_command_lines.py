"""Secrets among the words of a command line: behind misspelt options, where programs take them, and in the files that a line writes."""

from __future__ import annotations

import time

import pytest

from hpc_llm.text.secrecy import find_secret, is_secret, redacted, without_secrets

V = "swordfish"
OPTIONS = """--hub-tokn --hub_tok --hub-tokn= --hftok --hf-tkn --access-tok --auth-toke --tokn --passw --passwd --pasword --paswd --psw --pswd
    --passphras --scret --secrt --client-secrt --secr --credentail --api-ky --apiky= --acess-key=Zx81kd02 --wandb-api-ky""".split()
LINES = [
    "ssh-keygen -N {}", "ssh-keygen -t ed25519 -f k -N '{}'", "ssh-keygen -y -P {} -f k",
    "mount -t cifs //h/s /m -o password={},username=u", "mount //h/s /m -o rw,user=u,pass={}", "mount.cifs //h/s /m -o user=u%{}",
    "mount -o username=u,password={} //h/s /m",
    "echo 'h:5432:db:me:{}' > ~/.pgpass", "echo h:*:*:me:{} >> $HOME/.pgpass", "cat > ~/.pgpass <<EOF\nh:5432:db:me:{}\nEOF",
    "echo 'machine h login me password {}' >> ~/.netrc", "printf 'machine h\\nlogin me\\npassword {}\\n' > ~/.netrc",
    "cat <<EOF > ~/.netrc\nmachine h\n  login me\n  password {}\nEOF", "printf '[client]\\npassword={}\\n' > ~/.my.cnf",
    "cat > ~/.my.cnf <<EOF\n[client]\npassword = {}\nEOF", "echo https://me:{}@h > ~/.git-credentials",
    "curl -b 'session={}' http://h", "curl -sSLb sid={} http://h", "curl --cookie \"sid={}; a=b\" http://h",
    "curl -u me:{} http://h", "curl -u :{} http://h", "twine upload -u me -p {} dist/*", "curl -sSLu me:{} http://h", "wget --password={} http://h", "wget --http-password {} http://h",
    "python -c 'login(\"{}\")'", "python -c 'import wandb; wandb.login(key=\"{}\")'", "python -c \"login(token='{}')\"", "python x.py 'hub.login(\"me\", \"{}\")'",
    "mysql -u me -p{} db", "mysqldump -p{} db", "sshpass -p {} ssh h", "openssl rsa -in k -passin pass:{}", "openssl enc -aes-256-cbc -k {} -in a",
]  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
def test_a_misspelt_option_takes_a_secret(option: str) -> None:
    word, _, value = option.partition("=")
    for line in (f"train.py {word} {value or V} --steps 3", f"train.py {word}={value or V} --steps 3"):
        assert is_secret(line) and redacted(line) == line.replace(value or V, "(hidden)"), line


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_takes_or_writes_a_password(line: str) -> None:
    given = line.format(V)
    assert is_secret(given) and V not in redacted(given) and "(hidden)" in redacted(given)


def test_each_secret_of_one_command_is_hidden() -> None:
    assert redacted("ssh-keygen -p -P hunter22 -N hunter33 -f k") == "ssh-keygen -p -P (hidden) -N (hidden) -f k"
    assert redacted("curl -u me:hunter22 -b sid=hunter33 http://h") == "curl -u me:(hidden) -b sid=(hidden) http://h"


@pytest.mark.parametrize(
    "arguments",
    """--tokenizer gpt2|--tokenizr gpt2|--tokenizer-name gpt2-medium|--max-tokens 512|--max_tokns 512|--num-tokens 1e9|--tokens-per-step 512
    |--key-dim 64|--eos-token "</s>"|--eos-tok stop|--pad_token PAD|--pad_tok [PAD]|--token-type bpe|--tok-type bpe|--tok gpt2|--tok llama3
    |--mask-token [MASK]|--passes 3|--passed all|--pass inline|--pwd /work|--pwd data|--auth none|--author me|--key name|--ssh-key ~/.ssh/id_rsa
    |--hub-tokn $HF_TOKEN|--hub_tok ${HF_TOKEN}|--passwd-file /home/me/pw|--tok-path t.model|--taken fast|--broken no|--secretary me|--ask-password http://h
    |--token-shift rwkv|--prefix-tok fim|--top-k 50|--compass north|--hub-model-id me/model|--secrets folder""".replace("\n    ", "").split("|"),
)  # fmt: skip
def test_an_option_of_a_program_is_none(arguments: str) -> None:
    assert not is_secret(f"train.py {arguments}") and redacted(arguments) == arguments


@pytest.mark.parametrize(
    "line",
    [
        "curl -b cookies.txt http://h", "curl -c jar -b jar http://h", "curl -dbatch=fast http://h", "curl -u $U:$P http://h", "curl -b sid=$SESSION http://h",
        "ssh-keygen -N '' -f k", 'ssh-keygen -N "$PW" -f k', "mount -o rw,noatime /dev/sda /m", "mount -t cifs -o credentials=/root/c //h/s /m",
        "mount -t cifs -o user=u,password=$PW //h/s /m", "chmod 600 ~/.pgpass", "cp /safe/pgpass ~/.pgpass", 'echo "h:5432:db:me:$PW" > ~/.pgpass',
        "echo 12:30:01:02:training > log; cat ~/.netrc", "python -c 'login()'", "python -c 'login(token=token)'", "logging('information')",
        "mysql -p db", "openssl rsa -in k -passin env:PW", "openssl enc -aes-256-cbc -kfile f", "sshpass -p $PW ssh h", "sshpass -f f ssh h",
    ],
)  # fmt: skip
def test_a_line_without_a_password_stays(line: str) -> None:
    assert redacted(line) == line and not is_secret(line)


@pytest.mark.parametrize(
    ("words", "hidden"),
    [
        (["train.py", "--token", V, "--steps", 3], [V]),
        (["train.py", "--hub-tokn", V], [V]),
        (["curl", "-u", f"me:{V}", "http://h"], [f"me:{V}"]),
        (["ssh-keygen", "-N", "correct horse 9"], ["correct horse 9"]),
        (["train.py", "--tokenizer", "gpt2", "--max-tokens", 512], []),
        (["nfs", "password", "tokens"], []),
    ],
)
def test_the_words_of_a_list_are_looked_at_as_a_command(words: list[str], hidden: list[str]) -> None:
    assert find_secret({"task": {"arguments": words}}) == ("task.arguments" if hidden else None)
    assert without_secrets(words) == ["(hidden)" if word in hidden else word for word in words]


def test_many_words_take_a_time_that_grows_like_them() -> None:
    for word in (
        "curl -u a:bcd ",
        "--hub-tokn abcdefgh ",
        ".pgpass <<",
        "login('",
        "mount -o a,",
        "ssh-keygen -N ",
        "-a",
    ):
        text = word * (300_000 // len(word))
        begun = time.process_time()
        is_secret(text)
        redacted(text)
        assert time.process_time() - begun < 10, word


@pytest.mark.parametrize("password", ["Password123", "mysecret1", "admin_pass1", "wandb_key9", "labkey2024"])
def test_digits_behind_a_word_make_it_a_password_where_a_shell_reads_it(password: str) -> None:
    """The commonest form of one; in source such a word names a variable."""
    for option in ("--api-key", "--password", "--token"):
        for text in (f"serve {option} {password} --port 80", f"serve {option}={password}"):
            assert is_secret(text) and password not in redacted(text)
    assert not is_secret("client(api_key=api_key2)") and not is_secret("serve --api-key API_KEY")
