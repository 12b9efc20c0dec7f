package cluster

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Definitions returns a client for CustomResourceDefinitions.
func Definitions(api dynamic.Interface) dynamic.ResourceInterface {
	return api.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
}

// Definition returns the CustomResourceDefinition of a namespaced resource whose objects may have any fields.
func Definition(of schema.GroupVersionResource, kind string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": of.GroupResource().String()},
		"spec": map[string]any{
			"group": of.Group, "scope": "Namespaced",
			"names": map[string]any{
				"plural": of.Resource, "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List",
			},
			"versions": []any{map[string]any{
				"name": of.Version, "served": true, "storage": true,
				"schema": map[string]any{
					"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				},
			}},
		},
	}}
}
