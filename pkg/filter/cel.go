package filter

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
)

// Names of the variables in expressions.
const (
	varObject    = "object"
	varOld       = "old"
	varOperation = "operation"
	varEvent     = "event" // in filters of audit events, the only one
)

const (
	// costLimit is the maximum cost of one evaluation in units of CEL's cost model: about one unit per evaluated node or
	// visited element, and one unit per ten characters of a string. Kubernetes admission policies have the same limit per
	// expression. An evaluation that reaches the limit takes about 0.1 s. CEL adds the cost of a function call only after
	// the call returns.
	costLimit = 1_000_000
	// maxRange limits the length of a list that lists.range can allocate in one call, because CEL adds the cost of a call
	// only after the call.
	maxRange = 10_000
)

// concatenation computes the cost of a "+" whose operand types are known only at run time, as in object.metadata.name +
// "x". CEL's own cost model takes the length of the result into account only if the operand types are known at compile
// time. Without concatenation, an expression could double a string again and again almost for free. concatenation
// implements cost.ActualCostEstimator.
type concatenation struct{}

// CallCost returns nil for calls whose cost CEL's own model computes.
func (concatenation) CallCost(function, _ string, _ []ref.Val, result ref.Val) *uint64 {
	if function != operators.Add {
		return nil
	}
	var size int
	switch r := result.(type) {
	case types.String:
		size = len(r)
	case types.Bytes:
		size = len(r)
	default:
		return nil // lists are joined without copying
	}
	return new(uint64(1 + size/10)) // the cost of a "+" whose operand types are known
}

// environment compiles expressions. It contains two CEL environments.
type environment struct {
	object *cel.Env // declares only the variable object or event
	change *cel.Env // declares all variables that describe a change; nil if there are none
}

// newEnv returns an environment whose objects have this name.
func newEnv(name string) (e environment, err error) {
	e.object, err = cel.NewEnv(
		cel.Variable(name, cel.MapType(cel.StringType, cel.DynType)),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.OptionalTypes(),
		ext.Strings(),
		ext.Lists(ext.ListsMaxRangeSize(maxRange)),
		ext.Sets(),
		ext.Math(),
		ext.Regex(),
		ext.Network(),
		ext.Bindings(),
		ext.TwoVarComprehensions(),
		// Report invalid literals when the configuration is loaded, not on every evaluation.
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals()),
	)
	if err != nil || name != varObject {
		return e, err
	}
	e.change, err = e.object.Extend(cel.Variable(varOld, cel.DynType), cel.Variable(varOperation, cel.StringType))
	return e, err
}

// compile compiles an expression and reports whether the expression uses a variable that describes the change (old or
// operation). It calls report for each mistake, with the line and the column, counted from 1.
func (e environment) compile(
	text string, report func(line, column int, err error),
) (program cel.Program, onChange bool) {
	env := e.object
	checked, issues := env.Compile(text)
	if issues.Err() != nil && e.change != nil {
		env, onChange = e.change, true
		checked, issues = env.Compile(text)
	}
	for _, issue := range issues.Errors() {
		// CEL appends the name of its container to some messages. The container is always empty here.
		message := strings.TrimSuffix(issue.Message, " (in container '')")
		// CEL counts columns from 0, and reports -1 if it does not know the position.
		report(max(issue.Location.Line(), 1), max(issue.Location.Column()+1, 1),
			errors.New(strings.ReplaceAll(message, "\n", " ")))
	}
	if issues.Err() != nil {
		return nil, onChange
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		report(1, 1, wrongType(t))
	}
	program, err := env.Program(checked,
		cel.EvalOptions(cel.OptOptimize), cel.CostTracking(concatenation{}), cel.CostLimit(costLimit))
	if err != nil {
		report(1, 1, err)
	}
	return program, onChange
}

func wrongType(t *cel.Type) error {
	remedy := ""
	if t.Kind() == cel.OpaqueKind && t.TypeName() == "optional_type" {
		remedy = ": end the expression with .orValue(false) or .hasValue()"
	}
	return fmt.Errorf("the result must be a boolean, not %s%s", cel.FormatCELType(t), remedy)
}
