package filter

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// logInterval is the minimum time between two log messages about the same expression.
const logInterval = time.Minute

var (
	errNotBool = errors.New("the result is not a boolean")
	errBytes   = errors.New("cannot read the object")
)

// expression is a compiled `when`. It is safe for concurrent use. A nil expression is always true.
type expression struct {
	rule    int
	text    string
	program cel.Program
	bytes   func(schema.GroupVersionResource, *object.Object) ([]byte, error)
	onError func(rule int, err error)
	logger  *slog.Logger
	pool    sync.Pool // contains *variables

	log      rate.Sometimes
	unlogged atomic.Int64 // failures since the last log message
}

// change is a change to an object.
type change struct {
	resource schema.GroupVersionResource
	op       event.Type
	old, now *object.Object
}

// holds returns the result of evaluate, and reports a failure.
func (e *expression) holds(c change) bool {
	if e == nil {
		return true
	}
	holds, err := e.evaluate(c)
	if err != nil {
		e.report(c.now, err)
	}
	return holds
}

// evaluate evaluates the expression. If the evaluation fails, evaluate returns true and the error, because a
// superfluous event is better than a missing one.
func (e *expression) evaluate(c change) (bool, error) {
	v, ok := e.pool.Get().(*variables)
	if !ok {
		v = new(variables)
	}
	v.change, v.bytes = c, e.bytes
	result, _, err := e.program.Eval(v)
	*v = variables{}
	e.pool.Put(v)
	if err != nil {
		return true, err
	}
	holds, ok := result.(types.Bool)
	if !ok {
		return true, fmt.Errorf("%w: it is of type %s", errNotBool, result.Type().TypeName())
	}
	return bool(holds), nil
}

// report counts a failed evaluation. It logs the failure unless it logged one within logInterval.
func (e *expression) report(obj *object.Object, err error) {
	if e.onError != nil {
		e.onError(e.rule, err)
	}
	e.unlogged.Add(1)
	e.log.Do(func() {
		e.logger.Warn("filter expression failed, the event passes",
			"rule", e.rule, "namespace", obj.Namespace, "name", obj.Name,
			"failures", e.unlogged.Swap(0), "err", e.reason(err))
	})
}

// reason returns why an evaluation failed, for the log and for Explain. CEL's messages can quote values of the object,
// such as a string that is not a number. These values may be secret, so reason returns only messages that cannot
// contain them.
func (e *expression) reason(err error) string {
	message := strings.ReplaceAll(err.Error(), "\n", " ")
	key, missing := strings.CutPrefix(message, "no such key: ")
	if errors.Is(err, errBytes) || errors.Is(err, errNotBool) || missing && strings.Contains(e.text, key) {
		return message
	}
	for _, known := range [...]string{
		"no such key", "no such overload", "division by zero", "modulus by zero", "integer overflow",
		"unsigned integer overflow", "type conversion error", "index out of bounds", "cost limit exceeded",
		"operation cancelled: actual cost limit exceeded", errMalformed.Error(),
	} {
		if strings.HasPrefix(message, known) {
			return known
		}
	}
	return "a function does not accept its argument (the value is not shown, because it may be secret)"
}

// variables contains the values of the CEL variables for one evaluation.
type variables struct {
	change
	bytes func(schema.GroupVersionResource, *object.Object) ([]byte, error)

	oldView, objectView ref.Val // nil until the expression uses the variable
}

// ResolveName implements cel.Activation.
func (v *variables) ResolveName(name string) (any, bool) {
	switch name {
	case varObject, varEvent:
		if v.objectView == nil {
			v.objectView = v.view(v.now)
		}
		return v.objectView, true
	case varOld:
		if v.oldView == nil {
			v.oldView = v.view(v.old)
		}
		return v.oldView, true
	case varOperation:
		return types.String(v.op.String()), true
	}
	return nil, false
}

// view returns an object as a CEL value. If o is nil, it returns null. If the bytes of o cannot be read, it returns an
// error value.
func (v *variables) view(o *object.Object) ref.Val {
	if o == nil {
		return types.NullValue
	}
	raw, err := v.bytes(v.resource, o)
	if err != nil {
		return types.WrapErr(fmt.Errorf("%w: %w", errBytes, err))
	}
	return newView(raw)
}

// Parent implements cel.Activation.
func (*variables) Parent() cel.Activation { return nil }
