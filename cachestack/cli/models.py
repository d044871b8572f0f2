"""`cachestack models`: the known models, getting one, and what is known of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from cachestack.cli.output import JsonOption, plain_table, print_json, print_table, stage_bars, warn
from cachestack.errors import MissingExtra, ModelError
from cachestack.folders import models_folder
from cachestack.models.catalogue import CATALOGUE, KnownModel, get_known
from cachestack.models.manifest import damaged_files, read_manifest
from cachestack.models.pull import Pulled, pull
from cachestack.models.shelf import ModelShelf, ModelState

app = typer.Typer(no_args_is_help=True, help="The models that CacheStack can get by itself.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A name or alias from `cachestack models list`.")]


@app.command("list")
def list_models(json: JsonOption = False) -> None:
    """What is known, and what of it is here."""
    shelf = ModelShelf(models_folder())
    rows = [_summary(model, shelf) for model in CATALOGUE]
    if json:
        print_json({"folder": str(shelf.folder), "models": rows})
        return
    title = f"Models in {shelf.folder}"
    table = plain_table("name", "kind", "state", "size", "window", "langs", "licence", title=title)
    for row in rows:
        table.add_row(
            row["name"],
            row["kind"],
            row["state"],
            f"{row['num_parameters'] / 1e6:.1f} M",
            str(row["window_tokens"]),
            ", ".join(row["languages"]) if len(row["languages"]) < 4 else str(len(row["languages"])),
            row["licence"],
        )
    print_table(table)


@app.command("pull")
def pull_models(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Names from `cachestack models list`.")],
    wheel: Annotated[
        Path | None, typer.Option(help="Take the files from this wheel instead of downloading it.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch it again though it is here.")] = False,
    json: JsonOption = False,
) -> None:
    """Download, check, unpack and convert; nothing is installed. What is here already costs no time."""
    from cachestack.engines.transformers.convert import convert_gguf

    models = list(dict.fromkeys(get_known(name, CATALOGUE) for name in names))
    if wheel is not None and len(models) > 1:
        raise typer.BadParameter("--wheel belongs to one model; pull them one by one")
    folder = models_folder()
    results = []
    for model in models:
        with stage_bars(model.name) as report:
            result = pull(model, folder, convert=convert_gguf, wheel=wheel, force=force, report=report)
        if result.note:
            warn(result.note)
        results.append(result)
    if json:
        print_json({"folder": str(folder), "models": [_outcome(result) for result in results]})
        return
    for result in results:
        done = "already here" if result.work == "none" else result.work
        typer.echo(f"{result.model.name}: {result.state}, {done} ({result.path})")


@app.command("build")
def build_model(
    name: Annotated[str, typer.Argument(metavar="NAME", help="cross-encoder: the verifier of that name.")],
    threads: Annotated[int, typer.Option(min=1, help="How many cores to use.")] = 2,
    pairs: Annotated[int, typer.Option(min=64, help="Pairs of the corpus to train on.")] = 60_000,
    seed: Annotated[int, typer.Option(help="Of all that is random.")] = 0,
    json: JsonOption = False,
) -> None:
    """Train a model from the corpus that comes with the package. The cross-encoder takes up to three hours."""
    if name != "cross-encoder":
        raise typer.BadParameter(f"only cross-encoder can be built; {name!r} may be one to pull")
    try:
        from cachestack.training.cross import train_cross
    except ImportError as error:
        raise MissingExtra("torch", "local") from error
    from cachestack.semantic.verifiers.cross_encoder import FOLDER, file_in

    path = file_in(models_folder())
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.touch()  # before an hour is spent
        try:
            with stage_bars(name) as report:
                data, card = train_cross(seed=seed, report=report, num_pairs=pairs, threads=threads)
            part.write_bytes(data)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise ModelError(f"{path} cannot be written: {error}") from error
    if json:
        print_json({"name": FOLDER, "path": str(path), "card": card})
    else:
        typer.echo(f"{name}: trained ({path})")


@app.command("info")
def show_model(name: NameArgument, json: JsonOption = False) -> None:
    """One model: where it comes from, its files, and whether they are sound (exit status 1 if not)."""
    model = get_known(name, CATALOGUE)
    shelf = ModelShelf(models_folder())
    document = _details(model, shelf)
    if json:
        print_json(document)
    else:
        _print_details(document)
    if document["state"] == ModelState.DAMAGED:
        warn(f"{model.name} is damaged: `cachestack models pull {model.name} --force` puts it right")
        raise typer.Exit(1)


def _summary(model: KnownModel, shelf: ModelShelf) -> dict[str, Any]:
    return {
        "name": model.name,
        "kind": model.kind.value,
        "state": shelf.state(model).value,
        "aliases": list(model.aliases),
        "num_parameters": model.num_parameters,
        "window_tokens": model.window_tokens,
        "languages": list(model.languages),
        "licence": model.licence,
    }


def _outcome(result: Pulled) -> dict[str, Any]:
    return {
        "name": result.model.name,
        "state": result.state.value,
        "work": result.work,
        "path": str(result.path),
        "note": result.note,
    }


def _details(model: KnownModel, shelf: ModelShelf) -> dict[str, Any]:
    """The summary, and the files with their digests read anew."""
    document = _summary(model, shelf)
    document["source"] = {"wheel": model.wheel.requirement, "sha256": model.wheel.sha256}
    document["path"] = document["converted"] = None
    document["files"] = []
    if document["state"] == ModelState.ABSENT:
        return document
    folder = shelf.source_path(model) if document["state"] == ModelState.UNPACKED else shelf.path(model)
    document["path"] = str(folder)
    manifest = read_manifest(folder)
    if manifest is None:
        return document
    with stage_bars(model.name) as report:
        damaged = damaged_files(folder, manifest, report)
    document["converted"] = manifest.converted
    document["files"] = [
        {"path": f.path, "size_bytes": f.size_bytes, "sha256": f.sha256, "sha256_ok": f.path not in damaged}
        for f in manifest.files
    ]
    if damaged:
        document["state"] = ModelState.DAMAGED.value
    return document


def _print_details(document: dict[str, Any]) -> None:
    table = plain_table("", "", title=document["name"])
    table.add_row("kind", document["kind"])
    table.add_row("state", document["state"])
    table.add_row("where", document["path"] or "not here")
    table.add_row("also called", ", ".join(document["aliases"]))
    table.add_row("parameters", f"{document['num_parameters']:,}")
    table.add_row("window", f"{document['window_tokens']} tokens")
    table.add_row("languages", ", ".join(document["languages"]))
    table.add_row("licence", document["licence"])
    table.add_row("from", f"{document['source']['wheel']}, SHA-256 {document['source']['sha256']}")
    if document["converted"]:
        table.add_row("converted with", ", ".join(f"{name} {v}" for name, v in document["converted"].items()))
    print_table(table)
    files = plain_table("file", "bytes", "SHA-256", "sound")
    for file in document["files"]:
        files.add_row(
            file["path"],
            f"{file['size_bytes']:,}",
            f"{file['sha256'][:12]}…",
            "yes" if file["sha256_ok"] else "NO",
        )
    if files.row_count:
        print_table(files)
