// Package listwatch simulates an API server: it answers the requests of a client that watches ConfigMaps, with objects
// and events that it computes while it writes them. It uses very little CPU, so that clients can be measured at full
// speed.
//
// It serves LIST (with pages), WATCH, watch-lists, discovery and the namespace kube-system, and answers other requests
// with 404 like a real API server. The objects exist from the start, at resourceVersion Base. The events follow when
// they are released; each has its own resourceVersion. A watch can start at any of them.
package listwatch
