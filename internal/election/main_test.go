package election

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/deltabridge/deltabridge/test/cluster"
)

func TestMain(m *testing.M) {
	if namespace := os.Getenv(childVariable); namespace != "" {
		beChild(namespace)
		return
	}
	goleak.VerifyTestMain(cluster.Main(m))
}
