package diagnose_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

func TestFailed(t *testing.T) {
	cause := errors.New("refused")
	known := &sinks.ConnectError{Step: sinks.StepTLS, Address: "a:1", Key: "kafka.tls", Err: cause}
	for _, c := range []struct {
		err  error
		want diagnose.Finding
	}{
		{cause, diagnose.Finding{Step: sinks.StepTopic, Target: "t", Err: cause}},
		{fmt.Errorf("around: %w", known), diagnose.Finding{Step: sinks.StepTLS, Target: "a:1", Err: known, Remedy: "see kafka.tls"}},
	} {
		if diff := cmp.Diff(c.want, diagnose.Failed(sinks.StepTopic, "t", c.err), cmpopts.EquateErrors()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
