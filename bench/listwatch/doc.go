// Package listwatch is an API server with nothing behind it: it answers what a watcher of ConfigMaps asks, from objects
// and events that it computes while it writes them. So it costs next to nothing, and whoever reads from it can be
// measured at full speed.
//
// It serves LIST (with pages), WATCH, watch-lists, and the discovery, the namespace kube-system and the 404s that a
// client of a real API server would meet. Objects exist from the start, at resourceVersion Base; the events follow it,
// one resourceVersion each, as soon as they are released. A watch may begin at any of them.
package listwatch
