"""Which names of variables, keys and options say that their value is a secret, and how surely. Standard library only.

A name counts by its whole words, split at `_`, `-` and a change of case, so TOKENIZERS_PARALLELISM and SSH_AUTH_SOCK are none.
"""

from __future__ import annotations

import functools
import re

from hpc_llm.text.late_pattern import late_pattern

_PASSWORDS = frozenset(
    "PASSWORD PASSWORDS PASSWD PWORD PASSPHRASE PASSCODE CREDENTIAL CREDENTIALS CRED CREDS SECRET SECRETS".split()
)
_KEYS = frozenset(
    """TOKEN KEY KEYS APIKEY APIKEYS APITOKEN ACCESSKEY ACCESSTOKEN SECRETKEY PRIVATEKEY AUTHTOKEN AUTHKEY BEARER JWT AUTHORIZATION
    """.split()
)
"""Of these no plain number is one."""
_AT_THE_END = frozenset("PASS PWD PW PSK AUTH OAUTH PAT DSN COOKIE OTP TOTP MFA".split())
"""Words that mean a secret as the last of several: DB_PASS does, PWD and PASS_RATE do not."""
_COLLECTIVE = frozenset("TOKENS SESSION".split())
"""Last words of names whose value is a number more often than a secret."""
_OF_A_SERVICE = late_pattern(
    r"[A-Z0-9_]{0,100}(?:API_?(?:KEY|TOKEN)|(?:ACCESS|AUTH|HUB|HF|GITHUB|GITLAB|BOT)_?TOKEN|ACCESS_?KEY|SECRET_?KEY)[0-9]{0,9}"
)
"""Variables that hold a key of a service and nothing else."""
OF_VARIABLES = _AT_THE_END - {"PWD"} | _COLLECTIVE
"""What as the whole name of a variable of the environment means a secret. PWD is the working directory."""
_RUN_TOGETHER = late_pattern(
    r"\A[A-Z]{2,20}(?:PASSWORDS?|PASSWD|PASSPHRASE|APIKEYS?|APITOKEN|ACCESSKEY|ACCESSTOKEN|SECRETKEY|PRIVATEKEY|AUTHTOKEN)\Z"
)
_AT_THE_END_OF_A_WORD = late_pattern(
    r"\A([A-Z]{2,20}?)(?:(KEYS?)|PASS|(?<!OLD)PWD|SECRETS?|(?<=\AHF)TOKEN|(?<=\AGH)TOKEN|(?<=HUB)TOKEN|(?<=WANDB)TOKEN|(?<=SESSION)TOKEN|(?<=BOT)TOKEN|(?<=IDENTITY)TOKEN|(?<=REGISTRY)TOKEN|(?<=LDAP)PW|(?<=DB)PW|(?<=PG)PW|(?<=SSH)PW|(?<=USER)PW|(?<=ADMIN)PW|(?<=ROOT)PW)\Z"
)
"""PGPASS and SIGNINGKEY, in one word."""
_NO_SECRETS_LEFT = frozenset(
    """MON DON TUR HOC JOC WHIS LAC FLUN HIC DIC RIC MIC O HO PO SMO MALAR SHA LATCH LOW HOT ANY NO BY SUB PUB PUBLIC SORT GROUP CACHE
    PRIMARY FOREIGN DICT MAP INDEX LOOKUP ROW COL COLUMN QUERY LOG OUTPUT INPUT TEXT LABEL IMAGE LOSS METRIC JSON PARTITION UNIQUE
    SHIFT FUNCTION STATE CONFIG COM BY TRES SUR OVER UNDER ENCOM FORWARD BACKWARD HIGH BAND ALL MULTI SINGLE ONE TWO FIRST SECOND LAST
    PRE NUM TEST RENDER NON WC""".split()
)
"""What stands before KEY or PASS in words that hold none: monkey, hotkey, public key, compass, forward pass."""
_OF_PROGRAMS = frozenset(
    """GRAPH COMPILE OPT IR XLA MLIR TRT FX JIT LOOP KERNEL NODE OP OPS TORCH DYNAMO MODEL DATA FWD BWD GRAD STEP EPOCH BATCH TRAIN EVAL
    VAL WARM WARMUP COLD FAST SLOW FINAL EARLY LATE THIRD NEXT EXTRA FULL DRY REVERSE POST RE OUT CHECK CHECKS TESTS SANITY BUILD PREFILL
    DECODE ENCODE CLEANUP REDUCE IS HAS DID CAN MUST WILL SHOULD DOES COMPILER OPTIMIZER""".split()
)
"""What stands before PASS where a program, a compiler or a test makes one."""
_OF_DATA = frozenset(
    """SORT DATASET INPUT OUTPUT LABEL LABELS REWARD FN JSON TEXT IMAGE IMAGES AUDIO VIDEO PRIMARY FOREIGN GROUP CACHE DICT INDEX ROW COL COLUMN
    METRIC LOSS CHOSEN REJECTED RESPONSE QUESTION ANSWER MESSAGES TARGET FIELD""".split()
)
"""Words before KEY where it is the name of a column or a field: a secret there has to look drawn."""
_LISTED = frozenset(
    """IGNORE IGNORED DROP DROPPED SKIP SKIPPED MISSING UNEXPECTED EXCLUDE EXCLUDED INCLUDE INCLUDED KEEP KEPT REMOVE REMOVED RENAME LOAD SAVE
    REQUIRED OPTIONAL EXPECTED EXTRA FROZEN TRAINABLE PARAM PARAMETER STATE WEIGHT LOG LOGGED FILTER SELECT""".split()
)
"""Words before KEYS, or behind it with TO, where these are the names of parameters or fields."""
_OF_DEEDS = ("ING", "ION", "IZE", "ED")
_PASSES = frozenset("PASS PWD PW".split())
_ABOUT = frozenset(
    """PATH PATHS FILE FILES DIR FOLDER SOCK URL URI NAME HOST PORT ENDPOINT SIZE LENGTH LEN COUNT LIMIT TYPE TYPES MODE HEADS DIM
    TTL TIMEOUT EXPIRY METHOD PROVIDER PREFIX SUFFIX MASK ALGORITHM ALGORITHMS POLICY BACKEND HELPER HELPERS DROPOUT ERROR ERRORS
    EXCEPTION""".split()
)
"""Last words of names that say where a secret lies, or something of it, and not the secret itself."""
_OF_MODELS = frozenset(
    """BOS EOS PAD UNK CLS SEP MASK IMAGE IMG AUDIO VIDEO VISION TEXT SPECIAL START BEGIN END NEXT STOP PREFIX SUFFIX MIDDLE DECODER CLASS
    PLACEHOLDER INITIALIZER TRIGGER FIRST LAST PREV PREVIOUS INPUT OUTPUT PER MAX MIN NUM SEPARATOR DELIMITER TARGET LABEL""".split()
)
"""Words before TOKEN where it is one of a language."""
_SAY_HOW = frozenset("ASK PROMPT NO REQUIRE".split())
"""Words before PASSWORD where an option says whether there is one."""
_TRACKERS = frozenset("WANDB COMET NEPTUNE CLEARML SWANLAB MLFLOW".split())
_IDENTIFIES = frozenset(
    "ID IDS RUN COMMIT SHA REVISION REV HASH DIGEST VERSION TAG TAGS GROUP PROJECT ARTIFACT SWEEP ENTITY CHECKSUM".split()
)
"""Words of names whose value is known to all, however random it looks."""
_TOLD = late_pattern(
    r"""(?i:token|passw[a-z]{1,6}|passphrase|passcode|secrets?|credentials?|creds|authorization
    |(?:api|access|secret|auth|private|wandb|ssh|signing|encryption|deploy|account|storage|license|master|subscription|service
    |session|admin|client|openai|anthropic|hf|hub|aws|azure|google)[ _.-]?key)
    (?:[ _-]?(?:value|prod|dev|raw|plain|new|old|str))?\Z""",
    re.VERBOSE,
)
"""The end of a name that in lower case, too, is a secret's: `key` alone is an argument in many lines of source."""
_WORD = late_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def words_of(name: str) -> list[str]:
    """The words of a name in capitals, without numbers at its end."""
    words = [word.upper() for word in _WORD.findall(name)]
    while words and words[-1].isdecimal():
        words.pop()
    return words


def is_secret_name(name: str) -> bool:
    """Whether a variable or key of that name holds a secret.

    >>> is_secret_name("WANDB_API_KEY"), is_secret_name("hubToken"), is_secret_name("PGPASSWORD"), is_secret_name("KEYBOARD")
    (True, True, True, False)
    """
    return kind_of(name) is not None


def of_variable(name: str) -> str:
    """The name as it counts for a variable of the environment: PASS and AUTH alone are names of secrets there.

    >>> of_variable("PASS"), of_variable("PWD"), is_secret_name(of_variable("PASS")), is_secret_name("PASS")
    ('env_PASS', 'PWD', True, False)
    """
    return name if name in ("PWD", "OLDPWD") else f"env_{name}"


def says_of_secrets(word: str) -> bool:
    """Whether a name that ends in that word tells something of a secret, and not the secret."""
    return word in _ABOUT or word in _COLLECTIVE


def is_of_models(word: str) -> bool:
    """Whether a token behind that word is one of a language."""
    return word in _OF_MODELS


def is_key_of_data(name: str) -> bool:
    """Whether the value of that name is a column's or a field's name, as of `label_key`."""
    return words_of(name)[-1:] in (["KEY"], ["KEYS"]) and words_of(name)[-2:-1] != [] and words_of(name)[-2] in _OF_DATA


def is_collective(name: str) -> bool:
    """Whether a secret may be the value of that name, and a number just as well."""
    return words_of(name)[-1:] != [] and words_of(name)[-1] in _COLLECTIVE


def is_of_a_service(name: str) -> bool:
    """Whether a variable of that name holds a key of a service and nothing else."""
    return _OF_A_SERVICE.fullmatch(name.removeprefix("env_").removeprefix("env.")) is not None


@functools.lru_cache(maxsize=4096)
def kind_of(name: str) -> str | None:
    """`password` or `key`, for what a name says that it holds; None where that is no secret."""
    words = words_of(name)
    if not words or words[-1] in _ABOUT:
        return None
    kinds = {_kind_of_word(*three) for three in zip(["", *words], words, [*words[1:], ""], strict=False)}
    return "password" if "password" in kinds else "key" if "key" in kinds else None


def _kind_of_word(before: str, word: str, after: str) -> str | None:
    if word == "AUTH" and after in ("HEADER", "HEADERS"):
        return "password"
    is_pair = word == "KEY" and (before == "PUBLIC" or after in ("VALUE", "VALUES"))
    if before in _SAY_HOW and not after:
        return None
    if word in _PASSWORDS or (_RUN_TOGETHER.match(word) and "PASS" in word):
        return "password"
    if word == "TOKEN" and before in _OF_MODELS:
        return None
    if word == "KEYS" and (before in _LISTED or after == "TO"):
        return None
    if (word in _KEYS and not is_pair) or _RUN_TOGETHER.match(word):
        return "key"
    joined = _AT_THE_END_OF_A_WORD.match(word)
    if joined and joined[1] not in _NO_SECRETS_LEFT and not after:
        return "key" if joined[2] else "password"
    return "password" if before and not after and word in _AT_THE_END else None


@functools.lru_cache(maxsize=4096)
def tells(name: str) -> str:
    """How surely the value of that name is a secret where it stands in a text: `surely`, `likely`, `maybe`, or "" for not at all.

    In capitals it is a variable of the environment. Of other names the end decides: `fusion_pass` may be a compiler's,
    and `cache_key` or `key` are words of any program.

    >>> tells("HF_TOKEN"), tells("db_pass"), tells("fusion_pass"), tells("sort_key"), tells("pad_token")
    ('surely', 'surely', 'likely', 'maybe', '')
    """
    if kind_of(name) is None:
        return ""
    words = words_of(name)
    if set(words) <= {"KEY", "KEYS"} or name == "secrets":  # which is what people call the file of theirs
        return "maybe"
    if name.isupper() or _TOLD.search(name.rstrip("0123456789")):
        return "surely"
    if words[-1] in _AT_THE_END and words[-2] not in _NO_SECRETS_LEFT:
        return "surely" if words[-1] in _PASSES and not _is_of_programs(words[-2]) else "likely"
    joined = _AT_THE_END_OF_A_WORD.match(words[-1])
    if joined and words[-1].endswith(("PASS", "PWD")) and not _is_of_programs(joined[1]):
        return "surely"
    return "likely" if joined else "maybe"


def _is_of_programs(word: str) -> bool:
    return word in _OF_PROGRAMS or word.endswith(_OF_DEEDS)


@functools.lru_cache(maxsize=4096)
def is_trackers(name: str) -> bool:
    """Whether a variable of that name is a tracker's, and not one that names a run or the like."""
    words = {word.upper() for word in _WORD.findall(name)}
    return bool(words & _TRACKERS) and not words & (_ABOUT | _IDENTIFIES)
