package event

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func messageFor(group, resource, namespace, name string) *Message {
	m := &Message{
		Type:     Updated,
		Cluster:  "prod-eu.1",
		Resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
	}
	m.Identity.Namespace, m.Identity.Name, m.Identity.UID = namespace, name, types.UID("u1")
	return m
}

func TestExpand(t *testing.T) {
	const subject = "k8s.{cluster}.{group}.{resource}.{namespace}.{name}"
	tests := []struct {
		text   string
		escape Escape
		m      *Message
		want   string
	}{
		{
			subject,
			EscapeSubject,
			messageFor("", "configmaps", "kube-system", "kube-root-ca.crt"),
			"k8s.prod-eu%2E1.core.configmaps.kube-system.kube-root-ca%2Ecrt",
		},
		{
			subject,
			EscapeSubject,
			messageFor("rbac.authorization.k8s.io", "clusterroles", "", "system:node*>"),
			"k8s.prod-eu%2E1.rbac_authorization_k8s_io.clusterroles._.system:node%2A%3E",
		},
		{subject, EscapeSubject, &Message{Type: Gap, Cluster: "c", Resource: pods}, "k8s.c.core.pods._._gap"},
		{
			"$KV.S." + subject,
			EscapeKey,
			messageFor("rbac.authorization.k8s.io", "clusterroles", "", "system:a=b.c"),
			"$KV.S.k8s.prod-eu=2E1.rbac_authorization_k8s_io.clusterroles._.system=3Aa=3Db=2Ec",
		},
		{"x.{operation}.{version}.{uid}", EscapeSubject, messageFor("", "pods", "a", "b"), "x.updated.v1.u1"},
		{"k8s.{resource}", EscapeTopic, messageFor("apps", "deployments", "a", "b"), "k8s.deployments"},
		{"{group}-{name}", EscapeTopic, messageFor("", "roles", "a", "system:x"), "core-system-x"},
		{"{resource}/{namespace}/{name}", EscapeNone, messageFor("", "nodes", "", "n1"), "nodes//n1"},
	}
	for _, tt := range tests {
		template, err := ParseTemplate(tt.text, tt.escape)
		if err != nil {
			t.Fatal(err)
		}
		if got := template.Expand(tt.m); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestTemplateMistakes(t *testing.T) {
	tests := []struct {
		text   string
		escape Escape
		offset int
		part   string
	}{
		{"", EscapeNone, 0, "empty"},
		{"k8s.{nmae}", EscapeSubject, 4, `no variable "nmae"`},
		{"k8s.{name", EscapeSubject, 4, "no '}'"},
		{"k8s.name}", EscapeSubject, 8, "no '{'"},
		{"k8s events", EscapeSubject, 3, "NATS subject"},
		{"k8s.>", EscapeSubject, 4, "NATS subject"},
		{"k8s..{name}", EscapeSubject, 0, "empty token"},
		{"k8s:{name}", EscapeKey, 3, "key of a NATS bucket"},
		{"k8s.{name}.", EscapeKey, 0, "empty token"},
		{"k8s/{name}", EscapeTopic, 3, "Kafka topic"},
		{"k8s\u0161", EscapeTopic, 3, "Kafka topic"},
	}
	for _, tt := range tests {
		_, err := ParseTemplate(tt.text, tt.escape)
		place := fmt.Sprintf("template %q, character %d: ", tt.text, tt.offset+1)
		if err == nil || !strings.HasPrefix(err.Error(), place) || !strings.Contains(err.Error()[len(place):], tt.part) {
			t.Errorf("%q: %v", tt.text, err)
		}
	}
}

func TestWildcard(t *testing.T) {
	for text, want := range map[string]string{
		"k8s.{cluster}.{name}":    "k8s.*.*",
		"k8s.a-{name}.x":          "k8s.*.x",
		"plain":                   "plain",
		"{group}{resource}.{uid}": "*.*",
	} {
		template, err := ParseTemplate(text, EscapeSubject)
		if err != nil {
			t.Fatal(err)
		}
		if got := template.Wildcard(); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// Whatever a name holds, it is one token that NATS takes, and two names never become one.
func FuzzSubjectToken(f *testing.F) {
	for _, seed := range []string{"web-0", "kube-root-ca.crt", "system:node*", "a b", "%2E", "_", "", "\u00e9\x00\n>"} {
		f.Add(seed)
	}
	template, err := ParseTemplate("{name}", EscapeSubject)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		token := template.Expand(messageFor("", "pods", "ns", name))
		if token == "" || strings.ContainsAny(token, ". *>\t\r\n\x00") {
			t.Fatalf("%q became %q", name, token)
		}
		if back, err := url.PathUnescape(token); name != "" && (err != nil || back != name) {
			t.Fatalf("%q became %q, which reads back as %q (%v)", name, token, back, err)
		}
	})
}
