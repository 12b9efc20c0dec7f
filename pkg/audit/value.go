package audit

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

// The types of the CloudEvents that a bridge sends to a sink with audit events.
const (
	cloudEventAudit = "dev.deltabridge.audit"
	cloudEventGap   = "dev.deltabridge.gap"
)

// Loss says that audit events are missing.
type Loss struct {
	Events  int64  `json:"events"` // how many, or 0 if that is not known
	Message string `json:"message"`
}

// lossKey is the only key of a record in the journal that stands for lost events. Audit events cannot be mistaken for
// one, because they have an auditID.
const lossKey = "lost"

// record returns the record of a loss in a journal.
func (l *Loss) record() []byte {
	raw, _ := json.Marshal(map[string]*Loss{lossKey: l}) // cannot fail
	return raw
}

func parseLoss(raw []byte) (l Loss, isLoss bool) {
	var record map[string]*Loss
	if json.Unmarshal(raw, &record) != nil || len(record) != 1 || record[lossKey] == nil {
		return Loss{}, false
	}
	return *record[lossKey], true
}

// ParseValue returns the audit events in a line of a file, or in a message: an Event or an EventList of
// audit.k8s.io/v1, or a structured CloudEvent of another bridge with an audit event. The events alias the value. If the
// CloudEvent is a gap event, the result is a loss. ParseValue returns an error that says what is wrong, without
// repeating the data, if the value is something else. An empty value has no events.
func ParseValue(value []byte) (events [][]byte, lost *Loss, err error) {
	start := jsonscan.Space(value, 0)
	if start == len(value) {
		return nil, nil, nil
	}
	p := parser{validate: true}
	end := -1
	if value[start] == '{' {
		end = p.parse(value, start)
	}
	switch {
	case end < 0 || jsonscan.Space(value, end) < len(value):
		return nil, nil, errNotJSON
	case string(p.kind) == listKind:
		events, err = parseList(value)
		return events, nil, err
	case len(p.auditID) == 0 && len(jsonscan.Member(value[start:], "specversion")) > 0:
		return parseCloudEvent(value[start:end])
	case len(p.kind) > 0 && string(p.kind) != "Event" || len(p.apiVersion) > 0 && string(p.apiVersion) != listAPIVersion:
		return nil, nil, errors.New("neither an Event nor an EventList of " + listAPIVersion)
	}
	if wrong := p.check(); wrong != nil {
		return nil, nil, fmt.Errorf("an audit event %w", wrong)
	}
	return [][]byte{value[start:end:end]}, nil, nil
}

func parseCloudEvent(value []byte) (events [][]byte, lost *Loss, err error) {
	data := jsonscan.Member(value, "data")
	switch kind := string(jsonscan.Text(jsonscan.Member(value, "type"))); {
	case kind == cloudEventGap:
		return nil, parseGap(data), nil
	case kind != cloudEventAudit:
		return nil, nil, errors.New("a CloudEvent, but not of the type " + cloudEventAudit)
	case len(data) == 0 || data[0] != '{' || len(jsonscan.Member(data, "specversion")) > 0:
		return nil, nil, errors.New("a CloudEvent without an audit event in its data")
	}
	return ParseValue(data)
}

// parseGap returns the loss that the data of a gap event announces.
func parseGap(data []byte) *Loss {
	lost := new(Loss)
	if json.Unmarshal(data, lost) != nil || lost.Message == "" {
		lost.Message = "the bridge that has sent the audit events has announced a gap"
	}
	return lost
}
