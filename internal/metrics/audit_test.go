package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/deltabridge/deltabridge/pkg/audit"
)

// Requests are counted by their result, and all results exist from the start.
func TestAuditIntake(t *testing.T) {
	status := audit.JournalStatus{Acked: 3, Last: 10}
	a := NewAuditIntake(func() audit.JournalStatus { return status })
	a.Received(5)
	a.Received(2)
	a.Refused(audit.Full)
	if n := testutil.CollectAndCount(a, "deltabridge_audit_requests_total"); n != len(audit.Reasons())+1 {
		t.Errorf("%d results", n)
	}
	for name, want := range map[string]string{
		"deltabridge_audit_events_total":   "counter\ndeltabridge_audit_events_total 7\n",
		"deltabridge_audit_journal_events": "gauge\ndeltabridge_audit_journal_events 7\n",
	} {
		help, err := testutil.CollectAndFormat(a, expfmt.TypeTextPlain, name)
		if err != nil || !strings.HasSuffix(string(help), want) {
			t.Errorf("%s, %v", help, err)
		}
	}
	for result, want := range map[string]float64{"accepted": 2, string(audit.Full): 1, string(audit.Busy): 0} {
		if got := testutil.ToFloat64(a.requests.WithLabelValues(result)); got != want {
			t.Errorf("%s: %v", result, got)
		}
	}
}
