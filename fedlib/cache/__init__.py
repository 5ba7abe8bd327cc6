"""The stage cache: what is kept under which key, and how it is cleaned."""
