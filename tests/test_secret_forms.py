"""Secrets in every form of assignment, login and address, each built of a form, a name and a value; and ordinary lines beside them.

What a list of examples misses, a product of forms, names and values finds: each form is tried with each kind of name.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import time

import pytest

from hpc_llm.text.secrecy import find_secret, is_secret, redacted, without_secrets

ENVIRONMENT = ["HF_TOKEN", "WANDB_API_KEY", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "MY_CREDENTIALS"]
LOWER = ["api_key", "password", "hf_token", "clientSecret", "access-token", "accessToken"]
VALUES = ["s3cretv4lue", "0123456789abcdef0123456789abcdef01234567", "hunter22", "aB3-dE6_gH9.jK2", "p4$$w0rd!x"]

FORMS = {
    # source
    "python subscript": 'os.environ["{name}"] = "{value}"',
    "python subscript, tight": "env['{name}']='{value}'",
    "python annotation": '{name}: str = "{value}"',
    "python optional": "{name}: Optional[str] = '{value}'",
    "python union": '    {name}: str | None = "{value}"',
    "python bytes": "{name} = b'{value}'",
    "python setdefault": 'os.environ.setdefault("{name}", "{value}")',
    "python get": "os.getenv('{name}', '{value}')",
    "python call": 'login(add=True, {name}="{value}")',
    "python triple": '{name} = """{value}"""',
    "namespace": "Namespace(lr=0.1, {name}='{value}', steps=8)",
    "dataclass": "Args(model='tiny', {name}='{value}')",
    "list of a namespace": "Namespace(lr=0.1, {name}=['{value}'], host=None)",
    "list of a mapping": "non-default args: {{'lr': 0.1, '{name}': ['{value}'], 'model': ['llama']}}",
    "list in json": '{{"{name}": [ "{value}"], "b": [2]}}',
    "second of a list": "{{'{name}': ['a', '{value}']}}",
    "value of a mapping": "{{'{name}': {{'value': '{value}'}}}}",
    "mapping": "{{'lr': 0.1, '{name}': '{value}', 'n': 3}}",
    "pair": "[('A', 'b'), ('{name}', '{value}')]",
    "traceback": '  File "x.py", line 3, in f os.environ["{name}"]="{value}"',
    "javascript": 'const x = {{ {name}: "{value}" }};',
    "javascript process": 'process.env["{name}"] = `{value}`;',
    "ruby": "ENV['{name}'] ||= 1; h = {{ '{name}' => '{value}' }}",
    "go": '{name} := "{value}"',
    "r": '{name} <- "{value}"',
    "lua": 'setenv("{name}", "{value}")',
    "c": 'setenv("{name}","{value}",1);',
    # data
    "json": '{{"a": 1, "{name}": "{value}", "b": [2]}}',
    "json, tight": '{{"a":1,"{name}":"{value}","b":[2]}}',
    "json in a string": '{{\\"a\\": 1, \\"{name}\\": \\"{value}\\"}}',
    "yaml": "  {name}: {value}",
    "yaml, quoted": "- {name}: '{value}'",
    "yaml, flow": "{{a: b, {name}: {value}, c: d}}",
    "yaml, padded": "{name}:        {value}",
    "toml": '{name} = "{value}"',
    "ini": "{name} = {value}",
    "ini, tight": "{name}={value}",
    "properties": "spring.datasource.{name}={value}",
    "kubernetes": '{{"name": "{name}", "value": "{value}"}}',
    "kubernetes, flow": "{{name: {name}, value: {value}}}",
    "xml attribute": '<add {name}="{value}" other="x"/>',
    "xml pair": '<add key="{name}" value="{value}"/>',
    "xml element": "<{name}>{value}</{name}>",
    "plist": "<key>{name}</key><string>{value}</string>",
    "html": "{{&quot;{name}&quot;: &quot;{value}&quot;}}",
    # command lines
    "option": "tool --{name} {value} --steps 8",
    "option, sign": "tool --{name}={value} --steps 8",
    "option, quoted": "tool --{name} '{value}'",
    "define": "java -D{name}={value} -jar x",
    "cmake": "cmake -D{name}:STRING={value} ..",
    "hydra": "train.py model=tiny +tracker.{name}={value}",
    "hydra, quoted": "train.py 'tracker.{name}={value}'",
    "argument of env": "env A=b {name}={value} python x.py",
    "docker -e": "docker run -e {name}={value} image",
    "docker --env": "docker run --env={name}={value} image",
    "docker --env, quoted": 'docker run --env="{name}={value}" image',
    "docker build": "docker build --build-arg {name}={value} .",
    "singularity": "singularity exec --env A=b,{name}={value} x.sif",
    "kubectl": "kubectl create secret generic x --from-literal={name}={value}",
    "sbatch": "sbatch --export=ALL,{name}={value} job.sh",
    "grep -n": "run.sh:12:{name}={value}",
    "file": "file:{name}={value}",
    "xtrace": "++ {name}={value}",
    "export": "export {name}={value}; python x.py",
    "export, quoted": "export {name}='{value}' && python x.py",
    "setenv": "setenv {name} {value}",
    "fish": "set -gx {name} {value}",
    "setx": "setx {name} {value}",
    "powershell": "$env:{name} = '{value}'",
    "dotnet": '[Environment]::SetEnvironmentVariable("{name}", "{value}", "User")',
    "dockerfile": "ENV {name} {value}",
    "default of a shell": "echo ${{{name}:-{value}}}",
    "git config": "git config --global http.{name} {value} --{name}={value}",
    "pip": "pip config set global.{name} {value} # {name}: {value}",
    # lines of logs
    "logfmt": 'level=info msg="x y" {name}={value} step=3',
    "log": "2026-01-01 12:00:00 INFO config {name}={value}, lr=0.1",
    "log, colon": "[rank0]: {name}: {value}",
    "query": "https://h.example/d.jsonl?{name}={value}",
    "query, second": "GET https://h.example/d?a=b&{name}={value}&c=d HTTP/1.1",
    "query, encoded": "next=https%3A%2F%2Fh%2Fd%3F{name}%3D{value}%26c%3Dd",
    "query, html": "https://h.example/d?a=b&amp;{name}={value}&amp;c=d",
    "header": "curl -H '{name}: {value}' https://h",
    "header, x": 'curl -H "x-{name}: {value}" https://h',
    "repr of lines": "b'A=b\\n{name}={value}\\nC=d'",
    "dots": "  {name} ............ {value} x",
}
OF_THE_SHELL = frozenset(
    ["setenv", "fish", "setx", "dockerfile", "singularity", "sbatch", "export", "argument of env", "export, quoted", "default of a shell"]
)  # fmt: skip
"""Forms that only variables have."""
GENERATED_ONLY = frozenset(["dots"])
"""Forms that join a name and a value so little that the value has to look like a secret."""


def lines(form: str) -> list[tuple[str, str]]:
    """The lines of that form, each with its value."""
    made = []
    for name, value in itertools.product([*ENVIRONMENT, *LOWER], VALUES):
        if (form in OF_THE_SHELL and name in LOWER) or (form in GENERATED_ONLY and value != VALUES[1]):
            continue
        if "$" in value and ("encoded" in form or form in ("default of a shell",)):
            continue
        made.append((FORMS[form].format(name=name, value=value), value))
    return made


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_hidden_and_refused_in_every_form(form: str) -> None:
    of_form = lines(form)
    assert of_form
    left = [line for line, value in of_form if value in redacted(line) or not is_secret(line)]
    assert left == []


def test_the_forms_are_many() -> None:
    assert sum(len(lines(form)) for form in FORMS) > 3000


def test_what_stands_beside_a_secret_is_kept() -> None:
    assert redacted('os.environ["HF_TOKEN"] = "s3cretv4lue"  # mine') == 'os.environ["HF_TOKEN"] = "(hidden)"  # mine'
    assert redacted("https://h/d?a=b&token=s3cretv4lue&c=d") == "https://h/d?a=b&token=(hidden)&c=d"
    assert redacted("{'password': 'hunter22', 'lr': 0.1}") == "{'password': '(hidden)', 'lr': 0.1}"
    assert redacted("run.sh:12:HF_TOKEN=abc def") == "run.sh:12:HF_TOKEN=(hidden) def"
    assert redacted("Namespace(hf_token='s3cretv4lue', steps=8)") == "Namespace(hf_token='(hidden)', steps=8)"


@pytest.mark.parametrize(
    "password", ["s3cret99", "s3cr$t99", "p'w9999", "p/w9999", "p#w9999", "p?w9999", "p@ss99", "pa$$w0rd", "p,w;9999", "p%40w9999", "p[w]9999", "p:w9999", "$ecr3t99", "1234567"],
)  # fmt: skip
@pytest.mark.parametrize(
    "scheme", ["http://", "postgres://", "https://", "socks5h://", "//", "HTTP://", "redis+tls://"]
)
def test_a_password_before_a_host_is_hidden_whatever_it_holds(scheme: str, password: str) -> None:
    for user, host in itertools.product(["bob", "b.ob-2", ""], ["proxy:3128", "h.example/db", "10.0.0.1", "[::1]:80"]):
        address = f"{scheme}{user}:{password}@{host}"
        for text in (address, f"ALL_PROXY={address}", f"no answer of {address} after 3 s", f"{{'proxy': '{address}'}}"):
            assert is_secret(text) and password not in redacted(text), text
        assert is_secret(address, "HTTP_PROXY") and find_secret({"env": {"ALL_PROXY": address}}) == "env.ALL_PROXY"


@pytest.mark.parametrize(
    "text",
    ["bob:s3cret99@proxy:3128", "bob:swordfish@proxy:3128", "curl -x bob:s3cr$t99@proxy.example:3128 x", "HTTP_PROXY=bob:s3cret99@proxy", "bob:p/w'9x@proxy:3128",
     "pip --proxy bob:s3cret99@proxy.example install x", "bob:swordfish@proxy", "git clone me:ab12cd34@git.example/x", "'bob:swordfish@proxy.example'"],
)  # fmt: skip
def test_a_login_needs_no_scheme(text: str) -> None:
    said = redacted(text)
    assert is_secret(text) and not any(word in said for word in ("s3cr", "swordfish", "w'9x", "ab12"))


@pytest.mark.parametrize(
    "text",
    [
        "https://api.telegram.org/bot123456789:AAabcdefghijklmnopqrstuvwxyz0123456/sendMessage", "https://hooks.slack.com/workflows/T00000000/A00000000/123456789/aBcD1234efGH5678",
        "https://outlook.office.com/webhook/550e8400-e29b-41d4-a716-446655440000@550e8400-e29b-41d4-a716-446655440001/IncomingWebhook/0123456789abcdef0123456789abcdef/550e8400-e29b-41d4-a716-446655440000",
        "https://team.webhook.office.com/webhookb2/550e8400-e29b-41d4-a716-446655440000", "https://chat.example/hooks/a1b2c3d4e5f6g7h8i9j0k1l2m3",
        "https://open.feishu.cn/open-apis/bot/v2/hook/550e8400-e29b-41d4-a716-446655440000", "https://maker.ifttt.com/trigger/done/with/key/b3kL9x-Q2mZ7pR4tV8nW1",
        "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=550e8400-e29b-41d4-a716-446655440000", "https://notify.example/x/aB3dE6gH9jK2mN5pQ8sT1vW4",
        "https://prod-12.westus.logic.azure.com:443/workflows/0123456789abcdef0123456789abcdef/triggers/manual/paths/invoke", "https://oapi.dingtalk.com/robot/send?access_token=abcdef012345",
        "https://x.example/api/webhooks/1234567/aBcD1234efGH5678ijKL", "https://api.example/v1/token/a1b2c3d4e5f6",
    ],
)  # fmt: skip
def test_an_address_that_anybody_may_write_to_is_hidden(text: str) -> None:
    as_path = text.replace("://", ":/")
    for one in (text, f"url={text}", f"posting to '{text}'", f"there is no {as_path}"):
        assert is_secret(one) and "(hidden)" in redacted(one)
    assert without_secrets({"url": text})["url"] != text


@pytest.mark.parametrize(
    "line",
    [
        "db_pass: {}", "  - smtp_pwd: {}", "DB_PASS: {}", "mysqlPass : {}", "dbpass: {}", "user_pass = {}", "connected with db_pass: {}, host: h", "tool --db-pass {} x",
        "{{db_pwd: {}, host: h}}", "redis-pass: {} # of the cache",
    ],
)  # fmt: skip
def test_a_plain_word_behind_the_short_name_of_a_password_is_hidden(line: str) -> None:
    text = line.format("swordfish")
    assert is_secret(text) and redacted(text) == line.format("(hidden)")


@pytest.mark.parametrize(
    "text",
    [
        "- name: DB_PASSWORD\n  value: {}", "env:\n    - name: A\n      value: b\n    - name: DB_PASSWORD\n      value: '{}' # mine\n    - name: C\n      value: d",
        '{{\n  "name": "X_TOKEN",\n  "value": "{}"\n}}', '[\n{{"Key": "HF_TOKEN",\n  "Value": "{}"}}]', '{{\n  "value": "{}",\n  "name": "X_TOKEN"\n}}',
        "- name: PGPASSWORD\n  description: of the store\n  value: {}", 'name  = "DB_PASSWORD"\nvalue = "{}"', "0: - name: DB_PASSWORD\n0:   value: {}",
        "[rank0]: - name: DB_PASSWORD\n[rank0]:   value: {}", "- name: db-password\n  value: {}\n", 'a: "b\n- name: DB_PASSWORD\n  value: "{}',
        "- value: {}\n  name: DB_PASSWORD\n", '"name": "X_TOKEN", "value": "{}"',
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ["swordfish", "hunter2x", "ab|cd9", "a\\b9cd"])
def test_a_name_on_one_line_and_its_value_on_the_next(text: str, value: str) -> None:
    whole = text.format(value)
    assert is_secret(whole) and redacted(whole) == text.format("(hidden)")


@pytest.mark.parametrize(
    "text",
    [
        "- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef: {name: x}", "- name: DB_PASSWORD\n- name: HOST\n  value: gn01", "- name: HF_TOKEN\n  value: $(HF_TOKEN)",
        "- value: gn01\n- name: DB_PASSWORD", "- name: DB_PASSWORD\n  value: ''", '{"name": "pad_token",\n "value": "endoftext"}', "name: key\nvalue: loss",
        "name: tokens\nvalue: 8192", "name: HF_TOKEN\nvalue: <your token>", "- name: DB_PASSWORD\n}\n  value: gn01", "key: learning_rate\nvalue: 0.001",
        "graph_pass: fuse", "fusion_pass: inductor", "eval_pass: whole", "http_auth: basic", "hf_token: a|steps=3", "HF_TOKEN=$X|cat", "password: str|None", "--auth-token yes|no",
        "password=prompt|file|env", "|Token|Count|", "| password | type |", "|user|password|role|", "password: |", "password: |-", "HF_TOKEN=${X}||exit",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_pair_or_a_password_stays(text: str) -> None:
    assert redacted(text) == text and not is_secret(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("PASSWORD=ab|cd", "PASSWORD=(hidden)"), ("DB_PASSWORD: ab|cd x", "DB_PASSWORD: (hidden) x"), ("tool --password ab|cd", "tool --password (hidden)"),
        ("password=a|b|c9 x", "password=(hidden) x"), ("export HF_TOKEN=abcdef | tee x", "export HF_TOKEN=(hidden) | tee x"), ("HF_TOKEN=abcd||exit 1", "HF_TOKEN=(hidden)||exit 1"),
        ("HF_TOKEN=abcd|steps=3|lr=0.1", "HF_TOKEN=(hidden)|steps=3|lr=0.1"), ("| password: abcd|12.3|", "| password: (hidden)|12.3|"), ("PASSWORD=on|x9$k", "PASSWORD=(hidden)"),
    ],
)  # fmt: skip
def test_a_value_goes_on_behind_a_bar(text: str, said: str) -> None:
    assert is_secret(text) and redacted(text) == said


@pytest.mark.parametrize(
    "text",
    [
        "password: |\n  {}\nsteps: 3", "db_password: >-\n    {}\n\n    {}\nsteps: 3", "API_KEY: |2+  # mine\n  {}", "secret: !!str |\n  {}\n", "password: &a >+1\n  {}",
        "- name: DB_PASSWORD\n  value: |\n    {}\n- name: HOST", "[rank0]: password: |\n[rank0]:   {}\n[rank0]: b: c", "- password: |\n    {}\n  steps: 3", '"password":  |-\n  {}',
    ],
)  # fmt: skip
def test_a_block_below_the_name_of_a_secret_is_hidden(text: str) -> None:
    """YAML's `|` and `>`, with what they say of the ends of lines."""
    whole = text.format(*["hunter22x"] * 2)
    assert is_secret(whole) and redacted(whole) == text.format(*["(hidden)"] * 2)


@pytest.mark.parametrize(
    "text",
    [
        "password: |\nsteps: 3", "tokens: |\n  hello world", "password: >\n  your password here", "key: |\n  epoch loss\n  1 2.5", "password: | grep x\n  abcd1234",
    ],
)  # fmt: skip
def test_a_block_that_is_none_of_a_secret_stays(text: str) -> None:
    assert redacted(text) == text and not is_secret(text)


@pytest.mark.parametrize(
    "behind",
    [
        ">out.txt",
        ">>run.log; echo",
        ">/dev/null",
        ">/tmp/a/b 2>&1",
        ">&2 x",
        "&>all.log",
        "<in.txt ./run",
        ">$LOG",
        ">./x",
        "> a.sql",
    ],
)
@pytest.mark.parametrize("text", ["PASSWORD={}", "export DB_PASSWORD={}", "mysql -u me -p{}"])
def test_the_file_that_a_shell_writes_behind_a_password_is_shown(text: str, behind: str) -> None:
    assert redacted(text.format(f"hunter22x{behind}")) == text.format(f"(hidden){behind}")


@pytest.mark.parametrize("password", ["ab>cd9x", "hunt<er22", "ab>/cd9+x", "a&>9xkq", "x9>q.Zk7", "x9f3>&2y"])
def test_what_may_be_the_end_of_a_password_is_hidden_with_it(password: str) -> None:
    assert redacted(f"PASSWORD={password} x") == "PASSWORD=(hidden) x"


@pytest.mark.parametrize("fields", [("name", "value"), ("Name", "Value")])
def test_a_mapping_of_a_name_and_a_value_is_one_of_that_name(fields: tuple[str, str]) -> None:
    name, value = fields
    made = {"env": [{name: "HOST", value: "gn01"}, {name: "DB_PASSWORD", value: "swordfish"}]}
    assert without_secrets(made) == {"env": [{name: "HOST", value: "gn01"}, {name: "DB_PASSWORD", value: "(hidden)"}]}
    assert find_secret(made) == f"env.{value}"


ORDINARY = r"""tokens: 8192
num_key_value_heads=8
"num_key_value_heads": 8,
pad_token_id: 0
{'loss': 1.2, 'token_accuracy': 0.8}
{'loss': 1.2, 'mean_token_accuracy': 0.8123456789, 'num_tokens': 123456.0}
prompt_tokens=12
{"prompt_tokens": 12, "completion_tokens": 512, "total_tokens": 524}
key=value
KeyError: 'weight'
KeyError: 'model.layers.0.self_attn.q_proj.weight'
KeyError: 'HF_TOKEN'
Unexpected key(s) in state_dict: "model.layers.0.mlp.gate_proj.weight", "lm_head.weight".
missing_keys: ['lm_head.weight'], unexpected_keys: []
unexpected_key=transformer.h.0.attn.masked_bias
Special tokens have been added in the vocabulary, make sure the associated word embeddings are fine-tuned or trained.
commit 0123456789abcdef0123456789abcdef01234567
HEAD is now at 0123abc Mend the tokenizer
/cache/hub/models--x--y/blobs/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
/home/me/.cache/huggingface/token
nvcr.io/nvidia/pytorch:24.05-py3@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
docker://nvcr.io/nvidia/pytorch:24.05-py3
docker://pytorch:24.05@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
[INFO] [config.py:1003:print]   zero_config ....... {"stage": 3, "offload_param": null, "reduce_bucket_size": 5.000000e+08}
[INFO] [config.py:1003:print]   use_node_local_storage ....... False
[INFO] [config.py:1003:print]   pld_params ................... False
node1:1234:1234 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.0.0.1<0>
node1:1234:1250 [0] NCCL INFO comm 0x5566 rank 0 nranks 2 cudaDev 0 busId 1a000 commId 0x1234567890abcdef - Init COMPLETE
NCCL INFO ncclCommInitRank comm 0x7f8e3c0a1b20 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 7000 commId 0xa1b2c3d4e5f60718 - Init START
http://host:29500
tcp://10.0.0.1:29500
init_method='tcp://node-1:29500'
master_addr=10.0.0.1 master_port=29500
Author: Jane Doe <jane.doe@uni.example>
author:jane99@uni.example
mailto:jane99@uni.example
user@host
git@github.com:owner/name
git clone git@github.com:owner/name.git
ssh://git@github.com/owner/name.git
git+https://github.com/x/y@0123456789abcdef0123456789abcdef01234567#egg=z
git+https://github.com/x/y@0123456789abcdef0123456789abcdef01234567
hpc-llm: --set env.HF_TOKEN holds what looks like a secret.
hpc-llm: --set env.WANDB_API_KEY holds what looks like a secret.
rsync -a me@login1:/work/x /work/y
scp a.txt bob@h:/x
https://huggingface.co/meta-llama/Llama-2-7b-hf/resolve/01c7f73d771dfac7d292323805ebc428287df4f9/config.json
https://wandb.ai/team/project/runs/0a1b2c3d
https://files.pythonhosted.org/packages/ab/cd/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b78/torch-2.5.1-cp311-cp311-manylinux1_x86_64.whl
https://github.com/pre-commit/pre-commit-hooks/blob/0123456789abcdef0123456789abcdef01234567/x.py
https://github.com/o/n/actions/workflows/ci.yml
https://docs.example/en/latest/token_classification.html?highlight=token
https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
https://drive.google.com/file/d/1BxiMVs0XRA5nFMdKvBdBZjgmUUqptlbs74OgvE2upms/view
https://host:8080/a@b
https://registry.npmjs.org/react@18.2.0
npm:react@18.2.0
py-torch@2.1.0%gcc@12.2.0 cuda_arch=90
tokenizer_class: LlamaTokenizer
tokenizer = AutoTokenizer.from_pretrained(args.model, token=args.token)
token=token, use_auth_token=use_auth_token
login(token=os.environ["HF_TOKEN"])
os.environ["HF_TOKEN"] = get_token()
os.environ["HF_TOKEN"] = token
os.environ["TOKENIZERS_PARALLELISM"] = "false"
TOKENIZERS_PARALLELISM=false
export TOKENIZERS_PARALLELISM=true
SSH_AUTH_SOCK=/tmp/ssh-abc/agent.1
export HF_TOKEN="$HF_TOKEN"
export HF_TOKEN=$(cat ~/.hf)
HF_TOKEN=${HF_TOKEN:-}
HF_TOKEN: <your token>
HF_TOKEN=***
"HF_TOKEN": "********",
env: {HF_TOKEN: "{{ token }}"}
HF_TOKEN: unbound variable
password: ${oc.env:DB_PASSWORD}
"password": null
self.token = token
self.api_key = api_key or os.getenv("API_KEY")
def login(token: str | None = None, password: Optional[str] = None):
    token: torch.Tensor,
    key: Tensor, value: Tensor
q, k, v = self.query_key_value(hidden).chunk(3)
for key, value in config.items():
sorted(runs, key=lambda run: run.started)
max(rows, key=len), sort_key=steps, primary_key=id
"bos_token": "<s>", "eos_token": "</s>", "pad_token": "[PAD]", "unk_token": "<unk>"
eos_token = '<|endoftext|>'
"eos_token": "endoftext1234"
'pad_token': '<|finetune_right_pad_id|>'
bos_token_id=128000, eos_token_id=128009
image_token_index: 32000
max_new_tokens: 512, max_tokens=4096
tokens/s: 12345.6 | tokens per second per gpu: 1543.2
| Token | Count |
| key | value |
throughput (token/s): 1234.5
tokens_per_second=4683.37
JSONDecodeError: Unexpected token: identifier at line 1
SyntaxError: Unexpected token '}' at position 12
  token_type_ids: tensor([[0, 0, 0]])
attn_implementation=sdpa, key_padding_mask=None, need_weights=False
--pad-token 0 --eos-token-id 2 --vocab-size 32000
--tokenizer-type GPT2BPETokenizer --tokenizer-model /m/tokenizer.model
  tokenizer_type .................................. GPT2BPETokenizer
  attention_dropout ............................... 0.1
forward_pass: 12.5ms, backward pass: 30.1 ms
PASS: test_allreduce_8_ranks
PASSED tests/test_x.py::test_token[a-b]
authors = [{name = "A B", email = "a@b.example"}]
auth: none
Authentication failed for user, password required
Password for 'https://git@host':
secretary of state
secret_santa=yes
wandb: Run data is saved locally in /w/wandb/run-20240101_120000-a1b2c3d4
wandb: Syncing run 20260731-120000-taiwania2-z3o-llama2-7b-a1b2
wandb: Currently logged in as: someone. Use `wandb login --relogin` to force relogin
WANDB_RUN_ID=0a1b2c3d WANDB_PROJECT=llama-2-7b WANDB_MODE=offline
run_uuid: 550e8400-e29b-41d4-a716-446655440000
GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77
sha256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 size=4096
azure-keyvault-secrets==4.7.0
keyring==24.3.0 passlib==1.7.4 python-jose==3.3.0
from transformers import AutoTokenizer, AutoModelForTokenClassification
train.py:12:main@rank0
rank0:cuda:0@10.0.0.1
2026-01-01 12:00:01@node1
srun: job 123456 queued and waiting for resources
slurmstepd: error: *** JOB 123456 ON gn01 CANCELLED AT 2026-01-01T12:00:00 DUE TO TIME LIMIT ***
MASTER_ADDR=gn01 MASTER_PORT=29500 WORLD_SIZE=16
NO_PROXY=localhost,127.0.0.1 HTTP_PROXY=http://proxy.example:3128
http://bob:$PASSWORD@proxy:3128
https://${USER}:${TOKEN}@host/x
https://user@host/x
cache_key: layers_0_attention_weight_4096
loss_key=train/loss, metric_key=eval_loss, label_key=labels
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.""".splitlines()


IN_COMMANDS = """\
wandb login --host=https://wandb.uni.example {key}
wandb login --relogin --host https://wandb.uni.example {key}
wandb login local-{key}
curl -sSfu me:{word} https://host.example/x
curl -ume:{word} https://host.example
curl "https://host.example/?a=1&b=2" --proxy-user me:{word}
http -a me:{word} GET host.example
redis-cli -h db -a {word} ping
mongosh --host db -u me -p {word}
sqlcmd -S db -U me -P {word}
unzip -o -P {word} data.zip
zip -r -P '{word}' data.zip folder
7z x -p{word} data.7z
ldapsearch -x -D cn=me -w {word} -b dc=x
lftp -u me,{word} sftp://host
smbclient //host/share -U me%{word}
openssl enc -d -aes-256-cbc -pass pass:{word} -in x
htpasswd -cb users me {word}
xfreerdp /u:me /p:{word} /v:host
sqlplus scott/{word}@db
echo {word} | kinit me
echo -n '{word}' | sudo -nS mount /x
printf "{word}" | docker login -u me --password-stdin
kinit me@REALM <<< {word}
sudo -nS mount /x <<<'{word}'
docker login -u me --password-stdin registry.example <<< "{word}"
net use Z: \\\\server\\share {word} /user:me
net use * //server/share {word} /user:me
+ ncftpput -u me -p {word} host /x f""".splitlines()
NOT_IN_COMMANDS = """\
curl -fsSLO https://host.example:8443/x
curl -L --output a:b https://host.example
curl -u me https://host.example
curl -u "$USER:$PASSWORD" https://host.example
redis-cli -a "$REDIS_PASSWORD" ping
unzip -p archive.zip
zip -r out.zip folder
7z a -tzip out.zip folder
openssl x509 -passin env:PW -in x
openssl x509 -passin file:pw.txt
ldapsearch -x -W -b dc=x
mongodump -p --out x
sqlplus /nolog
echo done | sudo tee /etc/motd
echo "$PASSWORD" | sudo -S true
wandb login --relogin
kinit me <<< "$PASSWORD"
kinit me <<< $(cat pw)
cat <<< hello-world-12
read -r one two <<< alpha-beta-12
net use Z: \\\\server\\share /user:me
first pass: second
{"pass": "backward"}
srun -p gpuA100x4 -u python x.py""".splitlines()


@pytest.mark.parametrize("form", IN_COMMANDS)
@pytest.mark.parametrize("word", ["Xk7qLm2Vz9", "hunter22", "corr&ct"])
def test_a_password_among_the_words_of_a_program_is_hidden(form: str, word: str) -> None:
    key = "4f1c" * 10
    if "&" in word and "'{word}'" not in form and '"{word}"' not in form:
        word = word.replace("&", "")  # a shell ends the word there
    line = form.format(key=key, word=word)
    assert is_secret(line) and word not in redacted(line) and key not in redacted(line)
    assert redacted(redacted(line)) == redacted(line)


@pytest.mark.parametrize(
    "words",
    [
        "curl -sSf -u me:{word} https://host.example", "wandb login {key}", "wandb login --relogin {key}", "docker login -u me -p {word}",
        "mysql -u me -p{word}", "sshpass -p {word} ssh h", "redis-cli -a {word}", "huggingface-cli login --token {word}",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "form", ["Command '{}' returned non-zero exit status 1.", "subprocess.run({}, check=True)", "{}"]
)
def test_a_command_as_python_prints_it_hides_what_the_line_hides(form: str, words: str) -> None:
    key, word = "4f1c" * 10, "Xk7qLm2Vz9"
    said = words.format(key=key, word=word).split()
    for spelled in (str(said), json.dumps(said), str(tuple(said)), str([each.encode() for each in said])):
        line = form.format(spelled)
        assert is_secret(line) and word not in redacted(line) and key not in redacted(line), spelled
        assert redacted(redacted(line)) == redacted(line)


@pytest.mark.parametrize(
    "line",
    [
        "['srun', '--ntasks', '2', 'python', 'x.py']",
        "('a', 'b')",
        "layers: ['q_proj', 'v_proj']",
        "['curl', '-u', 'me', 'x']",
    ],
)
def test_other_lists_of_words_stay(line: str) -> None:
    assert redacted(line) == line and not is_secret(line)


@pytest.mark.parametrize(
    "form",
    [
        "{name}+={value}", "export {name}=''{value}", '{name}=""{value}', "{name}=''\"{value}\"", "printf -v {name} {value}", "printf -v {name} %s {value}",
        "read -r {name} <<< {value}", "read -rs {name} <<EOF\n{value}\nEOF", "{name}=$(cat <<'EOF'\n{value}\nEOF\n)", 'export {name}="$(cat <<-EOF\n\t{value}\n\tEOF\n)"',
        "docker login -u me --password-stdin host <<EOF\n{value}\nEOF", "kinit me <<'PW'\n{value}\nPW", "curl --oauth2-bearer {value} https://h.example",
        "wget --http-password={value} https://h.example",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["HF_TOKEN", "DB_PASSWORD"])
@pytest.mark.parametrize("value", ["s3cretPw9zk", "9f8e7d6c5b4a39281706"])
def test_what_a_shell_makes_of_parts_or_of_input_is_a_secret(form: str, name: str, value: str) -> None:
    text = f"set -e\n{form.format(name=name, value=value)}\necho done"
    assert is_secret(text) and value not in redacted(text) and "echo done" in redacted(text)
    assert redacted(redacted(text)) == redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "cat > config.yaml <<EOF\nlr: 3\nsteps: 9f8e7d6c\nEOF", "read -r LINE <<< alpha12beta", "read -r HF_TOKEN < token.txt", "kinit me <<< $PW",
        "TOKEN=$(cat <<EOF\n$HF_TOKEN\nEOF\n)", "python - <<EOF\nimport os\nEOF", "count+=1", "loss+=0.5", 'x=""', "f(a=''b'')", '{"auth": "none of it"}',
        '{"auth": "bm90aGluZyBoZXJl"}',
    ],
)  # fmt: skip
def test_other_input_stays(text: str) -> None:
    assert redacted(text) == text and not is_secret(text)


@pytest.mark.parametrize(
    "text",
    ['{{"auths": {{"registry.example": {{"auth": "{}"}}}}}}', '{{\\"auths\\": {{\\"h\\": {{\\"auth\\": \\"{}\\"}}}}}}'],
)
def test_a_login_of_docker_is_a_secret(text: str) -> None:
    login = base64.b64encode(b"user:s3cretPw9zk").decode()
    said = text.format(login)
    assert is_secret(said) and login not in redacted(said)


@pytest.mark.parametrize(
    "text", ["export A=hf_\\\nabcdEFGH123456789", 'x="hf_""abcdEFGH123456789"', "x='hf_'abcdEFGH123456789"]
)
def test_a_key_in_parts_is_a_secret(text: str) -> None:
    assert is_secret(text) and "abcdEFGH123456789" not in redacted(text)


JOINED = ["hf_AbcDefGh1JklMnoPqrStu12", "Xk7qLm2Vz9pw"]


@pytest.mark.parametrize("value", JOINED)
@pytest.mark.parametrize(
    "line", ["export HF_TOKEN={}", "srun python x.py --hf-token {} --steps 3", "curl -u me:{} https://h.example"]
)
def test_the_end_of_a_line_splits_no_secret(line: str, value: str) -> None:
    """Nowhere in the value, and nowhere in what names it."""
    whole = line.format(value)
    for at in range(4, len(whole) - 4):
        text = f"set -e\n{whole[:at]}\\\n{whole[at:]}\necho done"
        if not whole[at - 1 : at + 1].isspace():
            assert is_secret(text), text
        assert not any(part in redacted(text).replace("\\\n", "") for part in (value, value[:8], value[-8:])), text


def test_lines_that_go_on_and_hold_no_secret_stay_as_they_are() -> None:
    text = "srun python train.py \\\n  --lr 1e-4 \\\n  --tokenizer llama \\\n  --key-value-heads 8\n"
    assert redacted(text) == text and not is_secret(text)


HANDED = [
    "{name}+={value}", "{name}=''{value}", '{name}=""{value}', "{name}=$\"{value}\"", '{name}=("{value}")', "{name}[0]={value}", "{name}={head}\"{tail}\"", "{name}='{head}''{tail}'",
    "{name}='{head}'{tail}", "read -r {name} <<< {value}", "IFS= read -rs -p 'word: ' {name} <<<'{value}'", "mapfile -t {name} <<< \"{value}\"", "read {name} <<EOF\n{value}\nEOF",
    "{name}=$(cat <<EOF\n{value}\nEOF\n)", "{name}=`cat <<-'X'\n\t{value}\nX\n`", "printf -v {name} {value}", "printf -v {name} %s '{value}'", "export {name}=$(echo {value})",
    "{name}=\"$(printf '%s' {value})\"", "{name}=$(tr -d x <<< {value})", "tool --{name} \\\n    {value} \\\n  --steps 3",
]  # fmt: skip


@pytest.mark.parametrize("name", ["HF_TOKEN", "DB_PASSWORD", "WANDB_API_KEY"])
@pytest.mark.parametrize("form", HANDED)
def test_what_a_shell_hands_to_a_name_is_hidden(form: str, name: str) -> None:
    for value in ("s3cretv4lue", "0123456789abcdef0123456789abcdef01234567"):
        text = f"set -e\n{form.format(name=name, value=value, head=value[:5], tail=value[5:])}\necho done"
        assert is_secret(text), text
        assert value[:5] not in redacted(text) and value[-5:] not in redacted(text), redacted(text)
        assert redacted(redacted(text)) == redacted(text)


@pytest.mark.parametrize(
    "form",
    ["{} <<EOF\n{}\nEOF", "cat <<'X' | {}\n{}\nX", "{} <<< {}", "echo {1} | {0}", "x && {} <<-EOF\n\t{}\n\tEOF"],
)
@pytest.mark.parametrize(
    "program",
    ["docker login -u me --password-stdin", "hf auth login", "gh auth login --with-token", "helm registry login h"],
)
def test_what_a_program_that_asks_for_it_gets_is_hidden(form: str, program: str) -> None:
    text = form.format(program, "hunter22x")
    assert is_secret(text) and "hunter22x" not in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        '{{"auths": {{"registry.example": {{"auth": "{}"}}}}}}', '{{\\"auths\\":{{\\"h\\":{{\\"auth\\":\\"{}\\"}}}}}}', '{{"auths": {{"h": {{\n  "auth": "{}"\n}}}}}}',
        "//registry.npmjs.org/:_auth={}", "auth: {}",
    ],
)  # fmt: skip
def test_the_login_of_a_registry_is_a_secret(text: str) -> None:
    word = base64.b64encode(b"user:hunter22").decode()
    assert is_secret(text.format(word)) and word not in redacted(text.format(word))
    kept = {"auths": {"h": {"auth": word}}}
    assert find_secret(kept) == "auths.h.auth" and word not in str(without_secrets(kept))


@pytest.mark.parametrize(
    "text",
    [
        "tokens+=512", "total_tokens+=$n", "self.key += piece", "read -r TOKEN < file", 'read -r TOKEN <<< "$TOKEN"', "cat <<EOF\nhello\nEOF", "NAMES=$(cat <<EOF\na b\nEOF\n)",
        "cat > x.sh <<'EOF'\ndocker login\nls\nEOF", "HF_TOKEN=$(cat ~/.token)", 'HF_TOKEN=$(echo "$X")', "printf -v stamp %s now", 'print("a""b")', "f(b'abc', r\"x\")", "it's a 'word'",
        'x="$A"/"b"', '"say ""hello"" now"', "--name='a'b", '{"auth": "basic"}', "auth=required", "auth: c29tZXRoaW5n", "curl --oauth2-bearer $TOKEN https://h",
        "srun --export=ALL,A='b' x",
    ],
)  # fmt: skip
def test_what_only_looks_handed_stays(text: str) -> None:
    assert redacted(text) == text and not is_secret(text)


@pytest.mark.parametrize(
    "key", ["hf_AbcDefGh1JklMnoPqrStu12", "sk-proj-Abc1Def2Ghi3Jkl4Mno5", "AKIA" + "ABCDEFGHIJ234567"]
)
@pytest.mark.parametrize("before", ["", "x", "xy", "export HF_TOKEN="])
def test_base64_of_a_key_is_a_secret(key: str, before: str) -> None:
    word = base64.b64encode(f"{before} {key}\n".encode()).decode()
    for line in (f"echo {word} | base64 -d", f"token=$(base64 -d <<< '{word}')", f"data: {{key: {word}}}"):
        assert is_secret(line) and word not in redacted(line)


def test_other_words_of_that_alphabet_stay() -> None:
    words = [hashlib.sha256(bytes([i])).hexdigest() for i in range(50)]
    words += [base64.b64encode(f"a sentence of {i} words and no key in it".encode()).decode() for i in range(50)]
    assert [word for word in words if redacted(f"digest {word}") != f"digest {word}"] == []


@pytest.mark.parametrize("line", NOT_IN_COMMANDS)
def test_other_words_of_those_programs_stay(line: str) -> None:
    assert redacted(line) == line and not is_secret(line)


def test_a_drawn_word_behind_pass_is_a_password() -> None:
    assert redacted('{"user": "me", "pass": "Xk7qLm2Vz9"}') == '{"user": "me", "pass": "(hidden)"}'


def test_a_colour_behind_a_switch_is_no_part_of_it() -> None:
    line = "\x1b[34mSM_HP_APPEND_CONCAT_TOKEN=false\x1b[0m"
    assert redacted(line) == line and not is_secret(line)


@pytest.mark.parametrize("line", ORDINARY)
def test_an_ordinary_line_stays_as_it_is(line: str) -> None:
    assert redacted(line) == line and not is_secret(line)


def test_the_ordinary_lines_are_many() -> None:
    assert len(ORDINARY) >= 80


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("form", ["json", "python subscript", "query", "docker --env", "log"])
def test_what_was_hidden_stays_hidden_the_same(form: str, value: str) -> None:
    once = redacted(FORMS[form].format(name="HF_TOKEN", value=value))
    assert redacted(once) == once and not is_secret(once)


@pytest.mark.parametrize(
    "text",
    [
        "token=", "HF_TOKEN='", 'token="', "token: str", "password ", "http://a:", "//a:b@", "a:b@", "https://hooks/hooks/", "token%3D", "api key ",
        "?key=", "TOKEN,", "token=a,", "token=a'a", '"token", ', "a:bcd", "token....", "<token>", "-token ", "\\\\token", "token=${", "set token ", "https://h/a1/",
        "curl ", "curl -u ", "curl a -u a", "echo a | ", "mongo -p ", "wandb login ", "net -U", "7z ", "openssl pass:", "htpasswd -b a ",
        "a=''b'", "'a'b", "read TOKEN <<< ", "TOKEN=$(echo ", "x <<EOF\n", "x <<A <<B", "TOKEN=$(cat <<E\na\n", "auth: YTpi", "a login | ", "printf -v KEY ", "a\\\n", " \\\n ",
        "password=a|", "name: key\n", "name: HF_TOKEN\n  x: y\n", "value: abc\n", "name: HF_TOKEN\n" + " " * 90, "a_pass: ",
        "a login ", "a login -k ", "a login -b c ", "token:\n", "hf_token:\n  ", "api_keys:\n  - x1\n", "api_keys:\n\n", "hc-ping.com/", "https://h/ping/", "│ hf_token │ ", "│", "sl.",
    ],
)  # fmt: skip
def test_a_text_of_repeated_forms_takes_no_long_time(text: str) -> None:
    def seconds(length: int) -> float:
        started = time.process_time()
        for whole in (text * (length // len(text)), "key=" + text * (length // 2 // len(text)) + "@"):
            redacted(whole)
            is_secret(whole)
        return time.process_time() - started

    long = seconds(25_000)
    assert long < 0.3 or min(long, seconds(25_000)) < 8 * min(seconds(6_000) for _ in range(2))


@pytest.mark.parametrize(
    "key",
    [
        "sk-lf-33d0fabe-2fb4-17a1-087d-8a40097f87cf", "AQ.Ab8RN6hoNP08hT5isT6CjlNlAZkeNncJgQyVerdKKhVz4NiaBf", "SK6d779171cb09ee33b8cc952e16c39bd4",
        "vercel_blob_rw_Rn8cPMBUraDdCXRA_kccJ11HKw8gTep5ZFf7EdRpPdFzYdd", "ABSK" + "uRMFFw8Px6diSsjKORGs68JJNoqe" * 4 + "=",
        "EAACEdEose0cBA" + "mcF47EQWwaBEt47N6BuDDgmjPkex3y34" * 3,
        "eyJhcGlfYWRkcmVzcyI6" + "Imh0dHBzOi8vYXBwLm5lcHR1bmUuYWkiLCJhcGlfa2V5Ijoi" + "JUtcKgLWS5de7f==",
    ],
)  # fmt: skip
def test_keys_of_services_in_forms_of_their_own(key: str) -> None:
    assert is_secret(key) and key not in redacted(f"x {key} y")


SUM = "9e844d7c4af500c6c4acd18d6709330319301234"


@pytest.mark.parametrize(
    "key", [f"local-{SUM}", "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2", "tk_0a1b2c3d4e5f6g7h8i9j0klmnopqr"]
)
@pytest.mark.parametrize(
    "form", ["{}", "WHAT={}", "x {} y", "say '{}'.", "It is {}.", '{{"a": "{}"}}', "wandb login {}", "--set=env.FOO={}"]
)
def test_keys_of_servers_of_ones_own(key: str, form: str) -> None:
    text = form.format(key)
    assert is_secret(text) and key not in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        f"/scratch/u1/local-{SUM}/logs", f"runs/local-{SUM}", f"local-{SUM}/config.yaml", f"docker://image:local-{SUM}", f"local-{SUM}.log", f"exp_local-{SUM}",
        f"local-{SUM[:12]}", f"local-{SUM}01", f"nonlocal-{SUM}", f"pkg@local-{SUM}", "local-" + "z" * 40, f"local_{SUM}", SUM,
        "tk_abcdefghijklmnopqrstuvwxyzabc", "tk_tokenizer_32000", "tk_" + "1a" * 10, "x/tk_0a1b2c3d4e5f6g7h8i9j0klmnopqr", "ttk_0a1b2c3d4e5f6g7h8i9j0klmnopqr.bin",
    ],
)  # fmt: skip
def test_a_sum_of_a_commit_within_a_path_or_a_tag_is_no_key(text: str) -> None:
    assert not is_secret(text) and redacted(f"in {text} it is") == f"in {text} it is"


@pytest.mark.parametrize(
    "path",
    [
        "/data/bob42/SFT/SFT/Llama2/A100/out/logs",
        "/work/u1234567/LLM/HPC2/models/Llama2/7B",
        "/Qwen2/Delta/GPT2/logs/GPT2/scratch/H100",
    ],
)
def test_a_path_of_forty_characters_is_no_key_and_a_key_with_slashes_is_one(path: str) -> None:
    assert redacted(f"--model {path} is read") == f"--model {path} is read"
    drawn = "aB3/dE6gH9jK2mN5pQ8/sT1vW4xY7zA0bC3dE6gH"
    assert len(drawn) == 40 and drawn not in redacted(f"with {drawn} in it")


@pytest.mark.parametrize(
    "text", ["SKIP", "SK_LAYERS=32", "AQ.About", "ABSKIP/scratch", "EAAGLE decoding with 3 tokens", "sk-learn-1234"]
)
def test_words_that_begin_so_are_none(text: str) -> None:
    assert not is_secret(text)
