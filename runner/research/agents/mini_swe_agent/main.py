"""Inside the research sandbox: mini-swe-agent's own loop and environment, on the model behind the gateway.

Its model classes want litellm and fifty packages with it; ours is one request of the standard library.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import Any

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.utils.actions_text import format_observation_messages, parse_regex_actions

ACTION = r"```(?:bash|sh|mswea_bash_command)?\s*\n(.*?)\n?```"
RULES = (
    "You work in a shell, in /lab. Each of your replies holds a short thought and exactly one command, in a block:\n"
    "```bash\nCOMMAND\n```\nYou then see what it printed. Directories and variables are not kept between commands. "
    "End with `vibe finish`."
)
WRONG = "Write exactly one command in a ```bash block; there were {{actions|length}}."
SEEN = "exit code {{output.returncode}}\n{{output.exception_info}}{{output.output[:4000]}}" + (
    "{% if output.output|length > 8000 %}\n… {{output.output|length - 8000}} characters left out …\n{% endif %}"
    "{% if output.output|length > 4000 %}{{output.output[4000:][-4000:]}}{% endif %}"
)
COMMAND_S = 3600
KEPT = 4  # the rules, the brief, and the last step


class GatewayModel:
    """What the library asks of a model, over Chat Completions."""

    def __init__(self) -> None:
        self.config = SimpleNamespace(model_name=os.environ["VIBE_LLM_MODEL"])

    def query(self, messages: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
        plain = [{"role": message["role"], "content": message["content"]} for message in messages]
        body: dict[str, Any] = {"model": self.config.model_name, "messages": plain}
        if effort := os.environ.get("VIBE_LLM_EFFORT"):
            body["reasoning_effort"] = effort
        content = self._ask(body)
        actions = parse_regex_actions(content, action_regex=ACTION, format_error_template=WRONG)
        print(json.dumps({"say": actions[0]["command"], "tool": "bash"}), flush=True)
        return {"role": "assistant", "content": content, "extra": {"actions": actions, "cost": 0.0}}

    def _ask(self, body: dict[str, Any]) -> str:
        """The model's text. What does not fit into its context any more is forgotten, oldest steps first."""
        url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        while True:
            request = urllib.request.Request(url, json.dumps(body).encode())  # noqa: S310  the gateway's, fixed
            request.add_header("Content-Type", "application/json")
            try:
                with urllib.request.urlopen(request) as reply:  # noqa: S310
                    return json.load(reply)["choices"][0]["message"]["content"] or ""
            except urllib.error.HTTPError as error:
                told = error.read(2000).decode("utf-8", "replace")
                if error.code != 400 or len(body["messages"]) <= KEPT:
                    print(json.dumps({"say": f"no answer ({error.code}): {told}"}), flush=True)
                    raise
                del body["messages"][2 : 2 + len(body["messages"]) // 4 * 2]

    def format_message(self, **fields: Any) -> dict[str, Any]:
        return fields

    def format_observation_messages(
        self, _message: dict[str, Any], outputs: list[dict[str, Any]], template_vars: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        return format_observation_messages(outputs, observation_template=SEEN, template_vars=template_vars)

    def get_template_vars(self, **_: Any) -> dict[str, Any]:
        return {}

    def serialize(self) -> dict[str, Any]:
        return {"info": {"config": {"model": self.config.model_name}}}


def main() -> int:
    left = float(os.environ["VIBE_DEADLINE"]) - time.time()
    agent = DefaultAgent(
        GatewayModel(),
        LocalEnvironment(cwd="/lab", timeout=COMMAND_S),
        system_template=RULES,
        instance_template="{{task}}",
        cost_limit=0.0,
        wall_time_limit_seconds=max(1, int(left)),
        max_consecutive_format_errors=10,
        output_path=f"/lab/notes/mini-swe-agent-{int(time.time())}.json",
    )
    print(json.dumps({"say": f"ended: {agent.run(sys.stdin.read()).get('exit_status', '')}"}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
