// Package docs checks what the documents say about the repository itself: which package imports which, and which files
// and pages exist.
package docs
