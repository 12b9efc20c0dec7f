// Package discovery finds out which resources an API server serves, and whether one is gone.
//
//   - A group/version whose server does not answer is known to have failed: nothing is known about its resources.
//   - A discovery document that lacks a resource proves nothing: a restarting API server serves one before it has
//     loaded its CustomResourceDefinitions. [Discoverer.Gone] asks for the one resource.
package discovery
