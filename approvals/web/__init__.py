"""The pages: what reviewers, requesters and operators see. Reach services and queries, nothing below."""
