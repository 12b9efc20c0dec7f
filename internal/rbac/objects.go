package rbac

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Names contains the names to use in the objects.
type Names struct {
	// Name is the name of all roles and bindings.
	Name string
	// Namespace and ServiceAccount identify the service account that receives the permissions.
	Namespace, ServiceAccount string
}

// Objects returns the roles and bindings that grant access. The objects for the whole cluster precede the objects for
// namespaces, which are sorted by name. Each role is followed by its binding.
func Objects(access *Access, names Names) []any {
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: names.Namespace, Name: names.ServiceAccount}}
	meta := func(namespace string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name:      names.Name,
			Namespace: namespace,
			Labels:    map[string]string{"app.kubernetes.io/name": "deltabridge"},
		}
	}
	kind := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	ref := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: names.Name}
	}
	objects := []any{
		&rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: meta(""), Rules: access.Cluster},
		&rbacv1.ClusterRoleBinding{
			TypeMeta:   kind("ClusterRoleBinding"),
			ObjectMeta: meta(""),
			RoleRef:    ref("ClusterRole"),
			Subjects:   subjects,
		},
	}
	for _, namespace := range slices.Sorted(maps.Keys(access.Namespaces)) {
		objects = append(
			objects,
			&rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: meta(namespace), Rules: access.Namespaces[namespace]},
			&rbacv1.RoleBinding{
				TypeMeta:   kind("RoleBinding"),
				ObjectMeta: meta(namespace),
				RoleRef:    ref("Role"),
				Subjects:   subjects,
			},
		)
	}
	return objects
}

// Write writes the objects as YAML for kubectl apply. Notes are written as comments at the top.
func Write(w io.Writer, access *Access, names Names) error {
	var text strings.Builder
	text.WriteString("# What the bridge may read: get, list and watch, and nothing else.\n")
	for _, note := range access.Notes {
		fmt.Fprintf(&text, "# Note: %s.\n", note)
	}
	for _, object := range Objects(access, names) {
		data, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "---\n%s", data)
	}
	_, err := io.WriteString(w, text.String())
	return err
}
