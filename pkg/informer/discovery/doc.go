// Package discovery finds out which resources an API server serves, and whether a resource was removed.
//
//   - If the server of a group/version does not respond, the group/version is reported as failed, and nothing is known
//     about its resources.
//   - A discovery document that lacks a resource does not prove that the resource was removed: a restarting API server
//     serves such a document before it has loaded its CustomResourceDefinitions. [Discoverer.Gone] therefore requests
//     the resource itself.
package discovery
