package journals

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/deltabridge/deltabridge/test/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(cluster.Main(m)) }
