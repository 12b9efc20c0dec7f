// Package page serves the live page of the bridge: one HTML document, and one stream of server-sent events, which
// contains the sections that have changed.
//
// All viewers share one goroutine, which renders the page once per second. It starts with the first viewer and ends
// with the last one, so that the page costs nothing while nobody looks at it. The page is read only, and never delays
// delivery: [Page.Observe] returns at once if nobody has a tail, and a viewer that reads too slowly is disconnected.
//
// The status contains no data of objects, and anyone may see it. Options.Protect protects the tail.
package page
