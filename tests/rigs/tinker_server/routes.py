"""Routes of Tinker's API that SkyRL 0.3.0 does not have, after what the clients send and read (tinker 0.24.1, 0.38.0,
fireworks-ai 1.2.28): deleting and downloading checkpoints, loading one onto a new model, the end of a session,
cancelling, the context length of the model.
"""

from __future__ import annotations

import datetime
import json
import tarfile
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel
from skyrl.tinker import api, types
from skyrl.tinker.db_models import CheckpointDB, FutureDB, ModelDB, RequestStatus, SessionDB
from sqlmodel import select, update
from sqlmodel.ext.asyncio.session import AsyncSession

EXTERNAL = "external-"
"""Begins the name of a sampler checkpoint that was asked for in an external format: PEFT's, as every one here is."""
_CHECKPOINTS = "/api/v1/training_runs/{run}/checkpoints"


class External(BaseModel):
    """A request for weights in an external format."""

    model_id: str
    path: str


class Load(BaseModel):
    """A request to load weights: onto a model, or, since tinker 0.38.0, onto a new one of a session. `path` is of
    Tinker's form; Fireworks, whose trainers have checkpoints of their own, sends a name.
    """

    path: str
    model_id: str | None = None
    session_id: str | None = None
    model_seq_id: int | None = None


class Cancelled(BaseModel):
    """A request that no client waits for any more."""

    request_id: str


def add_routes(app: FastAPI, ready: Path) -> None:
    """Add them to SkyRL's own, or in their place. `ready` is there once the engine has loaded the model."""
    app.state.ready = ready
    ours = ("/api/v1/get_server_capabilities", "/api/v1/load_weights")
    app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", "") not in ours]
    app.get("/api/v1/get_server_capabilities")(_capabilities)
    app.post("/api/v1/load_weights")(_load)
    app.get("/api/v1/list_checkpoints")(_names)
    app.get("/readyz")(_ready)
    app.delete(_CHECKPOINTS + "/{kind}/{name}")(_delete)
    app.get(_CHECKPOINTS + "/sampler_weights/{name}/archive")(_archive)
    app.post("/api/v1/save_weights_external")(_save_external)
    app.get(_CHECKPOINTS + "/external_weights/{name}/external_weights_urls")(_external_urls)
    app.get("/files/{run}/{name}/{file:path}", name="external_file")(_external_file)
    app.post("/api/v1/sessions/{session_id}/finish")(_finish)
    app.post("/api/v1/cancel_future")(_cancel)


async def _capabilities(request: Request) -> dict[str, Any]:
    model = request.app.state.engine_config.base_model
    length = json.loads((Path(model) / "config.json").read_text())["max_position_embeddings"]
    return {"supported_models": [{"model_name": model, "max_context_length": length}]}


async def _ready(request: Request) -> Response:
    """SkyRL's own `healthz` answers before its engine can."""
    return Response(status_code=200 if request.app.state.ready.exists() else 503)


async def _load(request: Request, asked: Load) -> Any:
    """SkyRL loads onto a model that is there; the rank of a new one is that of the model it was saved from."""
    async with AsyncSession(request.app.state.db_engine) as session:
        if "://" not in asked.path:
            asked.path = await _newest(session, asked.path)
        model = asked.model_id
        if model is None:
            path = types.TinkerPath.parse(asked.path)
            if path is None:
                raise HTTPException(400, f"{asked.path} is no path of a checkpoint")
            source = await api.get_model(session, path.primary_id)
            wanted = types.CreateModelInput(lora_config=types.LoraConfig.model_validate(source.lora_config))
            model = f"{asked.session_id}:train:{asked.model_seq_id}"
            created = await api.create_future(session, types.RequestType.CREATE_MODEL, model, wanted)
            row = ModelDB(
                model_id=model,
                base_model=source.base_model,
                lora_config=source.lora_config,
                status="created",
                request_id=created,
                session_id=asked.session_id,
            )
            session.add(row)
            await session.commit()
        return await api.load_weights(api.LoadWeightsRequest(model_id=model, path=asked.path), request, session)


async def _newest(session: AsyncSession, name: str) -> str:
    """Tinker's path of the newest training checkpoint of that name. Raises `HTTPException` 404."""
    query = select(CheckpointDB).where(
        CheckpointDB.checkpoint_id == name, CheckpointDB.checkpoint_type == types.CheckpointType.TRAINING
    )
    found = (await session.exec(query.order_by(CheckpointDB.created_at.desc()))).first()
    if found is None:
        raise HTTPException(404, f"Checkpoint not found: {name}")
    return f"tinker://{found.model_id}/weights/{name}"


async def _names(request: Request) -> dict[str, list[str]]:
    """Of all training checkpoints, as a Fireworks trainer tells them."""
    async with AsyncSession(request.app.state.db_engine) as session:
        query = select(CheckpointDB.checkpoint_id).where(CheckpointDB.checkpoint_type == types.CheckpointType.TRAINING)
        return {"checkpoints": sorted(set((await session.exec(query)).all()))}


def _file(request: Request, run: str, kind: str, name: str) -> Path:
    """The folder of a checkpoint. Raises `HTTPException` 404 for what is none."""
    base = Path(request.app.state.engine_config.checkpoints_base) / run
    places = {
        "weights": base / f"{name}.tar.gz",
        "sampler_weights": base / "sampler_weights" / f"{name}.tar.gz",
        "external_weights": base / "sampler_weights" / f"{EXTERNAL}{name}.tar.gz",
    }
    if kind not in places or not places[kind].exists():
        raise HTTPException(404, f"Checkpoint not found: {run}/{kind}/{name}")
    return places[kind]


async def _delete(request: Request, run: str, kind: str, name: str) -> Response:
    path = _file(request, run, kind, name)
    sort = types.CheckpointType.TRAINING if kind == "weights" else types.CheckpointType.SAMPLER
    async with AsyncSession(request.app.state.db_engine) as session:
        row = await session.get(CheckpointDB, (run, path.name.removesuffix(".tar.gz"), sort))
        if row is not None:
            await session.delete(row)
        await session.commit()
    if path.is_dir():  # a training checkpoint is a folder in spite of its name
        for file in sorted(path.rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        path.rmdir()
    else:
        path.unlink()
    return Response(status_code=204)


async def _archive(request: Request, run: str, name: str) -> Response:
    """tinker 0.24.1 follows this redirect to SkyRL's own download of the whole archive."""
    url = request.url_for("download_checkpoint_archive", unique_id=run, checkpoint_id=name)
    expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    return RedirectResponse(str(url), 302, {"Expires": expires.strftime("%a, %d %b %Y %H:%M:%S GMT")})


async def _save_external(request: Request, asked: External) -> Any:
    """Since tinker 0.38.0 this is the only kind of checkpoint that can be downloaded."""
    async with AsyncSession(request.app.state.db_engine) as session:
        wanted = api.SaveWeightsForSamplerRequest(model_id=asked.model_id, path=f"{EXTERNAL}{asked.path}")
        return await api.save_weights_for_sampler(wanted, session)


async def _external_urls(request: Request, run: str, name: str) -> dict[str, Any]:
    with tarfile.open(_file(request, run, "external_weights", name)) as archive:
        files = [member.name for member in archive if member.isfile()]
    urls = {file: str(request.url_for("external_file", run=run, name=name, file=file)) for file in files}
    return {"urls": urls, "expires": datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)}


async def _external_file(request: Request, run: str, name: str, file: str) -> Response:
    with tarfile.open(_file(request, run, "external_weights", name)) as archive:
        try:
            content = archive.extractfile(file)
        except KeyError:
            content = None
        if content is None:
            raise HTTPException(404, f"{file} is not in {name}")
        return Response(content.read(), media_type="application/octet-stream")


async def _finish(request: Request, session_id: str) -> dict[str, Any]:
    """Lets the models of the session go, so that others find slots."""
    async with AsyncSession(request.app.state.db_engine) as session:
        row = await session.get(SessionDB, session_id)
        if row is None:
            raise HTTPException(404, "Session not found")
        row.status = "expired"
        models = await session.exec(
            select(ModelDB).where(ModelDB.session_id == session_id, ModelDB.status == "created")
        )
        for model in models.all():
            model.status = "unloading"
            await api.create_future(session, types.RequestType.UNLOAD_MODEL, model.model_id, types.UnloadModelInput())
        await session.commit()
    return {}


async def _cancel(request: Request, asked: Cancelled) -> dict[str, Any]:
    """A request that has not begun never does."""
    async with AsyncSession(request.app.state.db_engine) as session:
        await session.exec(
            update(FutureDB)
            .where(FutureDB.request_id == int(asked.request_id), FutureDB.status == RequestStatus.PENDING)
            .values(status=RequestStatus.FAILED, result_data={"error": "cancelled", "status": "failed"})
        )
        await session.commit()
    return {}
