package filter

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// logInterval is how long an expression that keeps failing is silent in the log after a line about it.
const logInterval = time.Minute

var (
	errNotBool = errors.New("the result is neither true nor false")
	// errBytes is wrapped by errors of those who keep an object's bytes.
	errBytes = errors.New("the object can't be had")
)

// expression is a `when` compiled. It is safe for concurrent use. A nil expression holds always.
type expression struct {
	rule    int
	text    string
	program cel.Program
	bytes   func(schema.GroupVersionResource, *object.Object) ([]byte, error)
	onError func(rule int, err error)
	logger  *slog.Logger
	pool    sync.Pool // of *variables

	lastLine atomic.Int64 // when the last line was logged, in nanoseconds since 1970; 0: never
	unlogged atomic.Int64 // failures since then
}

// holds evaluates the expression. One that fails holds: an event too many is better than one lost.
func (e *expression) holds(resource schema.GroupVersionResource, op event.Type, old, obj *object.Object) bool {
	if e == nil {
		return true
	}
	holds, err := e.evaluate(resource, op, old, obj)
	if err != nil {
		e.failed(obj, err)
		return true
	}
	return holds
}

func (e *expression) evaluate(resource schema.GroupVersionResource, op event.Type, old, obj *object.Object) (bool, error) {
	v, ok := e.pool.Get().(*variables)
	if !ok {
		v = new(variables)
	}
	v.op, v.old, v.object, v.resource, v.bytes = op, old, obj, resource, e.bytes
	result, _, err := e.program.Eval(v)
	*v = variables{}
	e.pool.Put(v)
	if err != nil {
		return false, err
	}
	holds, ok := result.(types.Bool)
	if !ok {
		return false, fmt.Errorf("%w: it is of type %s", errNotBool, result.Type().TypeName())
	}
	return bool(holds), nil
}

// failed counts, and logs once in a while.
func (e *expression) failed(obj *object.Object, err error) {
	if e.onError != nil {
		e.onError(e.rule, err)
	}
	failures := e.unlogged.Add(1)
	now, last := time.Now().UnixNano(), e.lastLine.Load()
	if last != 0 && now-last < int64(logInterval) {
		return
	}
	// Of several goroutines that come here at once, one logs.
	if !e.lastLine.CompareAndSwap(last, now) {
		return
	}
	e.unlogged.Add(-failures)
	e.logger.Warn("filter expression failed, the event passes",
		"rule", e.rule, "namespace", obj.Namespace, "name", obj.Name,
		"failures", failures, "error", e.reason(err))
}

// variables is the activation of one evaluation: what its variables stand for.
type variables struct {
	op          event.Type
	old, object *object.Object
	resource    schema.GroupVersionResource
	bytes       func(schema.GroupVersionResource, *object.Object) ([]byte, error)

	oldView, objectView ref.Val // made when the evaluation first comes upon them
}

// ResolveName implements cel.Activation.
func (v *variables) ResolveName(name string) (any, bool) {
	switch name {
	case varObject:
		if v.objectView == nil {
			v.objectView = v.viewOf(v.object)
		}
		return v.objectView, true
	case varOld:
		if v.oldView == nil {
			v.oldView = types.NullValue
			if v.old != nil {
				v.oldView = v.viewOf(v.old)
			}
		}
		return v.oldView, true
	case varOperation:
		return types.String(v.op.String()), true
	}
	return nil, false
}

// viewOf an object; an error, as a value, if its bytes can't be had.
func (v *variables) viewOf(o *object.Object) ref.Val {
	read := v.bytes
	if read == nil {
		read = func(_ schema.GroupVersionResource, o *object.Object) ([]byte, error) { return o.Bytes() }
	}
	raw, err := read(v.resource, o)
	if err != nil {
		return types.WrapErr(fmt.Errorf("%w: %w", errBytes, err))
	}
	return newView(raw)
}

// Parent implements cel.Activation.
func (*variables) Parent() cel.Activation { return nil }
