package informer_test

import (
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/deltabridge/deltabridge/test/cluster"
)

func TestMain(m *testing.M) {
	// The second handler limits the rate of reported errors by the time of the last one in the process. In a bubble of
	// synctest, whose clock begins in 2000, it would wait for decades if a test outside of it was the last.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] //nolint:reassign // that is how handlers are removed
	goleak.VerifyTestMain(cluster.Main(m))
}
