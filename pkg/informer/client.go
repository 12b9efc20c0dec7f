package informer

import (
	"fmt"
	"net/http"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// NewClient returns a client for all resources of the API server that config names. The client decodes responses to the
// types of pkg/object; see object.NegotiatedSerializer. It requests JSON only. It has no rate limit, because the API
// server applies its own (API Priority and Fairness), and a client-side limit would delay lists but not watches.
//
// NewClient does not change config. It ignores Timeout, which would end every watch. A request whose response does not
// begin within answerTimeout ends.
func NewClient(config *rest.Config) (rest.Interface, error) {
	c := rest.CopyConfig(config)
	c.AcceptContentTypes, c.ContentType = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.NegotiatedSerializer = object.NegotiatedSerializer()
	c.GroupVersion, c.APIPath = nil, "" // requests use absolute paths
	c.QPS, c.RateLimiter = -1, nil
	c.Timeout = 0
	// An API server compresses every watch event separately. For the server and for the bridge, compression costs more CPU
	// time than all other processing of an event, and 44 KB of memory per watch.
	c.DisableCompression = true
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	c.Dial = buffered(c.Dial)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return timed{next} })
	client, err := rest.UnversionedRESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	return client, nil
}

// ResourcePath returns the URL path of a resource, in one namespace or, if namespace is empty, in all namespaces.
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
