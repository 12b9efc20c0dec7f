package fleet

import (
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	kubediscovery "k8s.io/client-go/discovery"
)

// NewWithDiscovery is New with another discovery client.
func NewWithDiscovery(config Config, client kubediscovery.DiscoveryInterfaceWithContext) *Fleet {
	s := New(config)
	s.discovery = discovery.New(client, config.Client)
	return s
}
