"""Secrets among the words of a command line: behind misspelt options, where programs take them, and in the files that a line writes."""

from __future__ import annotations

import time

import pytest
from pace import is_within

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
        assert is_within(time.process_time() - begun, 10), word


@pytest.mark.parametrize("password", ["Password123", "mysecret1", "admin_pass1", "wandb_key9", "labkey2024"])
def test_digits_behind_a_word_make_it_a_password_where_a_shell_reads_it(password: str) -> None:
    """The commonest form of one; in source such a word names a variable."""
    for option in ("--api-key", "--password", "--token"):
        for text in (f"serve {option} {password} --port 80", f"serve {option}={password}"):
            assert is_secret(text) and password not in redacted(text)
    assert not is_secret("client(api_key=api_key2)") and not is_secret("serve --api-key API_KEY")


OF_PROGRAMS = [
    "https://packages.uni.example/t/qx-0b1c2d3e-4f50-4617-8a9b-c0d1e2f3a4b5/main", "http://10.0.0.7:8080/t/{}/noarch/repodata.json", "mc alias set store https://s3.uni.example eve {}",
    "mc --insecure config host add store http://h:9000 eve '{}' --api S3v4", "mcli admin user add store eve {}", "curl -E me.p12:{} https://h.example", "curl --proxy-cert me.pem:{} https://h.example",
    "--cert ~/me.pem:{}", "ossutil64 config -e h -i eve -k {}", "coscmd config -a eve -s {} -b x", "qshell account eve {} me", "b2 authorize-account eve {}", "wpa_passphrase cluster {}",
    "rabbitmqctl add_user eve {}", "poetry config http-basic.mine eve {}", "poetry config pypi-token.mine {}", "doctl auth init -t {}", "anaconda -t {} upload x", "ttyd -c eve:{} bash",
    "etcdctl --user root:{} get x", "swift -U eve -K {} list", "kubectl create secret generic x --from-literal=word={}", "impdp eve/{}@db", "echo {} | myproxy-logon -S", "--secret {} --steps 3", "words --secret={}",
    "note pw={}", "userpwd=eve:{}", "--login eve:{}",
]  # fmt: skip


@pytest.mark.parametrize("form", OF_PROGRAMS)
def test_a_form_of_a_program_s_own(form: str) -> None:
    text = form.format("Jw4nLx7RtZ")
    assert is_secret(text) and "Jw4nLx7RtZ" not in redacted(text) and "0b1c2d3e" not in redacted(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CURL_OPTS", "-sS -u eve:marigold"), ("WGET_FLAGS", "--http-password marigold"), ("BASIC", "eve:marigold7"), ("REGISTRY_LOGIN", "eve:marigold7"), ("ANYTHING", "eve:Jw4nLx7RtZ"),
        ("MFA", "marigold"), ("SITE_OTP", "marigold"), ("TOTP", "JBSWY3DPEHPK3PXP"),
    ],
)  # fmt: skip
def test_what_a_variable_holds_for_a_program(name: str, value: str) -> None:
    assert find_secret({"env": {name: value}}) == f"env.{name}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("IMAGE", "pytorch:2.5.1-cuda12.4"), ("LOGIN", "gn01:8080"), ("USER", "eve"), ("PROXY", "proxy:3128"), ("ACCOUNT", "abcd-delta-gpu"), ("CURL_OPTS", "-sS --retry 3"), ("BASIC", "yes"),
        ("OTP", "27"), ("X", "SHA512:uNiVztksCsDhcJ3Yz0r5Yb5w3vJ7Q7LrO4mWm3cMVrk"), ("MFA", "off"), ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"), ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:512"), ("TORCH_LOGS", "inductor:dynamo2"),
        ("X", "https://discuss.pytorch.org/t/cuda-11-8-rtx-4090-x2/12345"), ("X", "https://discuss.pytorch.org/t/how-to-train-llama/7/2"), ("X", "mc alias list store"), ("X", "curl --cert me.pem --key me.key h"),
        ("X", "--cert me.pem"), ("X", "swift build -c release"), ("X", "--secret-file words"), ("X", "kubectl create secret generic x --from-file=a=b"),
    ],
)  # fmt: skip
def test_what_says_nothing_secret_passes(name: str, value: str) -> None:
    assert find_secret({"env": {name: value}}) is None and redacted(f"{name}={value}") == f"{name}={value}"


@pytest.mark.parametrize(
    "form",
    [
        "IOError: secret {} has expired", "password not accepted: {}", "api key was rejected by the server: {}", "ftp: uid=eve pwd={}", "user eve with pass {}: refused", "jdbc:oracle:oci:eve/{}@db1 is down",
        "403 for Bearer {}", "my_token is {}, and should not be", "login failed: account eve, pw {}", "prog: error: argument --hub-token: invalid choice: '{}' (choose from 'a')", "key was '{}'",
    ],
)  # fmt: skip
def test_what_an_error_tells_of_a_key(form: str) -> None:
    text = form.format("Jw4nLx7RtZ")
    assert is_secret(text) and "Jw4nLx7RtZ" not in redacted(text)


@pytest.mark.parametrize(
    "line",
    """key not found: model.layers.0.weight2|token not found: layer1|the key is LLaMA2Chat7B|user eve pwd=/work/x1|uid=eve pwd=$PW|the token is invalid|password was not accepted: none|user: eve:users
    |argument --dtype: invalid choice: 'bfloat17'|api_key not found: OPENAI_API_KEY|jdbc:oracle:thin:@h:1521|account: abcd:gpu|Secret not found: default/regcred|user=eve, pass 3 of 5""".replace(
        "\n    ", ""
    ).split("|"),
)
def test_what_an_error_tells_of_other_things(line: str) -> None:
    assert redacted(line) == line and not is_secret(line)
