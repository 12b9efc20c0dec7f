package statustext

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC //nolint:gosmopolitan // the reference output has times of this zone
	goleak.VerifyTestMain(m)
}
