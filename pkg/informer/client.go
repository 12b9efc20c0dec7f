package informer

import (
	"fmt"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// NewClient returns a client for all resources of the API server that config names. What it reads decodes to the types
// of pkg/object; see object.NegotiatedSerializer. It asks for JSON only, and does not throttle itself: the API server
// does (API Priority and Fairness), and a client-side limit would hold back lists but not watches.
//
// config is not changed. Its Timeout is ignored, since it would end each watch.
func NewClient(config *rest.Config) (rest.Interface, error) {
	config = clientConfig(config)
	config.Dial = buffered(config.Dial)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	client, err := rest.UnversionedRESTClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	return client, nil
}

func clientConfig(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.AcceptContentTypes, c.ContentType = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.NegotiatedSerializer = object.NegotiatedSerializer()
	c.GroupVersion, c.APIPath = nil, "" // requests name their whole path
	c.QPS, c.RateLimiter = -1, nil
	c.Timeout = 0
	// An API server compresses watches event by event: that costs it and us more than all else that is done with an
	// event, and 44 KB for each watch.
	c.DisableCompression = true
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	return c
}

// ResourcePath is where the API server serves a resource, in one namespace or with "" in all of them.
func ResourcePath(gvr schema.GroupVersionResource, namespace string) string {
	path := "/apis/" + gvr.Group + "/" + gvr.Version
	if gvr.Group == "" {
		path = "/api/" + gvr.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + gvr.Resource
}
