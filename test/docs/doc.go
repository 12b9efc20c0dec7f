// Package docs checks what the documents say about the repository itself: which package imports which, which files,
// pages and commands exist, that the chart and the bridge accept the files that the pages show, and which versions are
// tested.
package docs
