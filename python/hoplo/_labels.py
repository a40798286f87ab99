"""Labels that every node has without being given them: its id, under hoplo's name and Ray's."""

from __future__ import annotations

NODE_ID_LABEL = "hoplo.io/node-id"
NODE_ID_LABEL_OF_RAY = "ray.io/node-id"
