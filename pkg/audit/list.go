package audit

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

// What the API server sends.
const (
	listAPIVersion = "audit.k8s.io/v1"
	listKind       = "EventList"
)

var errNotJSON = errors.New("not valid JSON")

// parseList returns the events in the body of a request, an EventList. They alias the body. If anything in the body is
// wrong, there are no events, and the error says what is wrong, without repeating data of the body.
//
// All of it is checked, because consumers expect valid JSON: jsonscan accepts more. The values are checked one by one,
// so that the depth of an object is limited as it is in the API server, which accepts 10,000 levels, and not more: a
// client of the API server must not be able to have other events rejected together with its own. For the same reason,
// everything else that a client can choose is accepted, such as invalid UTF-8.
func parseList(body []byte) (events [][]byte, err error) {
	var apiVersion, kind []byte
	w := jsonscan.Open(body, 0, '{')
	for w.Next() {
		key := w.Key
		if key != nil && string(key) == "items" && body[w.Pos] == '[' {
			var end int
			events, end, err = parseItems(body, w.Pos)
			w.Leave(end)
			continue
		}
		value := w.Value()
		if key == nil || !json.Valid(value) {
			return nil, invalid(body)
		}
		switch string(key) {
		case "apiVersion":
			apiVersion = jsonscan.Text(value)
		case "kind":
			kind = jsonscan.Text(value)
		case "items":
			if events, err = nil, nil; string(value) != "null" {
				err = errors.New("items is not a list of audit events")
			}
		}
	}
	start := jsonscan.Space(body, 0)
	if start == len(body) || body[start] != '{' || w.End() < 0 || jsonscan.Space(body, w.End()) < len(body) {
		return nil, invalid(body)
	}
	if string(apiVersion) != listAPIVersion || string(kind) != listKind {
		return nil, fmt.Errorf("not an %s of %s", listKind, listAPIVersion)
	}
	if err != nil {
		return nil, err
	}
	return events, nil
}

// parseItems reads the list of events at b[i]. It returns the offset after the list, or -1 if it is not valid JSON.
func parseItems(b []byte, i int) (events [][]byte, end int, err error) {
	p := parser{validate: true}
	w := jsonscan.Open(b, i, '[')
	for n := 0; w.Next(); n++ {
		start := w.Pos
		if b[start] != '{' {
			if !json.Valid(w.Value()) {
				return nil, -1, nil
			}
			if err == nil {
				err = fmt.Errorf("items[%d] is not an object", n)
			}
			continue
		}
		if w.Leave(p.parse(b, start)); w.Bad {
			return nil, -1, nil
		}
		if wrong := p.check(); wrong != nil && err == nil {
			err = fmt.Errorf("items[%d] %w", n, wrong)
		}
		events = append(events, b[start:w.Pos:w.Pos])
	}
	return events, w.End(), err
}

// invalid returns the error for a body that is not an EventList because it is not one complete JSON object.
func invalid(body []byte) error {
	var value map[string]json.RawMessage
	err := json.Unmarshal(body, &value)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("%w: %w (byte %d of %d)", errNotJSON, err, syntax.Offset, len(body))
	}
	return errors.New("not one complete JSON object")
}
