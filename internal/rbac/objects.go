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

// objects returns a role and its binding for a namespace. If namespace is empty, they are for the whole cluster.
func objects(names Names, namespace string, rules []rbacv1.PolicyRule) []any {
	role := "Role"
	if namespace == "" {
		role = "ClusterRole"
	}
	kind := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	meta := metav1.ObjectMeta{
		Name: names.Name, Namespace: namespace, Labels: map[string]string{"app.kubernetes.io/name": "deltabridge"},
	}
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: names.Namespace, Name: names.ServiceAccount}
	return []any{ // the YAML of a Role or RoleBinding has the same fields
		&rbacv1.ClusterRole{TypeMeta: kind(role), ObjectMeta: meta, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			TypeMeta: kind(role + "Binding"), ObjectMeta: meta, Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role, Name: names.Name},
		},
	}
}

// allObjects returns the objects for the whole cluster, followed by those for each namespace, which are sorted by name.
func allObjects(access *Access, names Names) []any {
	all := objects(names, "", access.Cluster)
	for _, namespace := range slices.Sorted(maps.Keys(access.Namespaces)) {
		all = append(all, objects(names, namespace, access.Namespaces[namespace])...)
	}
	return all
}

// Write writes the roles and bindings that grant access, as YAML for kubectl apply. Notes are written as comments at
// the top.
func Write(w io.Writer, access *Access, names Names) error {
	var text strings.Builder
	text.WriteString("# The access that the bridge requires, and nothing else.\n")
	for _, note := range access.Notes {
		fmt.Fprintf(&text, "# Note: %s.\n", note)
	}
	for _, object := range allObjects(access, names) {
		data, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "---\n%s", data)
	}
	_, err := io.WriteString(w, text.String())
	return err
}
