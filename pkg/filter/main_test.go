package filter

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gvr reads "group/version/resource", with an empty group for the core group.
func gvr(t testing.TB, text string) schema.GroupVersionResource {
	t.Helper()
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		t.Fatalf("%q is not group/version/resource", text)
	}
	return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
}
