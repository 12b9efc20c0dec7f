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

// The variables of an expression.
const (
	varObject    = "object"
	varOld       = "old"
	varOperation = "operation"
)

const (
	// costLimit limits one evaluation, in units of CEL's cost model: about one for each evaluated node or visited
	// element, and one for every ten characters of a string. Kubernetes' admission policies have the same limit for one
	// expression; it takes about 0.1 s. A single function call is charged after it was made.
	costLimit = 1_000_000
	// maxRange limits what lists.range can allocate in one step, before its cost is counted.
	maxRange = 10_000
)

// concatenation charges for a + whose operands have no type before they are evaluated, as in
// object.metadata.name + "x". CEL's own model knows the size of a concatenation only if the types are known. Otherwise
// a string could double itself for free. It implements cost.ActualCostEstimator.
type concatenation struct{}

// CallCost returns nil for calls that CEL's own model must charge for.
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
		return nil // lists are joined without a copy
	}
	return new(uint64(1 + size/10)) // as for a + with known types
}

// environment compiles expressions.
type environment struct {
	object *cel.Env // has only the variable object
	change *cel.Env // has all variables
}

func newEnv() (e environment, err error) {
	e.object, err = cel.NewEnv(
		cel.Variable(varObject, cel.MapType(cel.StringType, cel.DynType)),
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
		// Invalid literals are mistakes in the configuration, not failures on each object.
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals()),
	)
	if err != nil {
		return e, err
	}
	e.change, err = e.object.Extend(cel.Variable(varOld, cel.DynType), cel.Variable(varOperation, cel.StringType))
	return e, err
}

// compile compiles an expression, and reports whether it uses a variable of the change (old, operation). Mistakes have
// Line, Column and Err set.
func (e environment) compile(text string) (program cel.Program, onChange bool, mistakes []*RuleError) {
	env := e.object
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		env, onChange = e.change, true
		checked, issues = env.Compile(text)
	}
	if issues.Err() != nil {
		return nil, false, issuesToErrors(issues)
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, false, []*RuleError{{Line: 1, Column: 1, Err: wrongType(t)}}
	}
	program, err := env.Program(checked,
		cel.EvalOptions(cel.OptOptimize), cel.CostTracking(concatenation{}), cel.CostLimit(costLimit))
	if err != nil {
		return nil, false, []*RuleError{{Line: 1, Column: 1, Err: err}}
	}
	return program, onChange, nil
}

func wrongType(t *cel.Type) error {
	remedy := ""
	if t.Kind() == cel.OpaqueKind && t.TypeName() == "optional_type" {
		remedy = ": end it with .orValue(false) or .hasValue()"
	}
	return fmt.Errorf("the result must be true or false, not of type %s%s", cel.FormatCELType(t), remedy)
}

func issuesToErrors(issues *cel.Issues) []*RuleError {
	var errs []*RuleError
	for _, issue := range issues.Errors() {
		// CEL adds its container, which has no meaning here, to some messages.
		message := strings.TrimSuffix(issue.Message, " (in container '')")
		errs = append(errs, &RuleError{
			// CEL counts columns from 0. The place of a few mistakes is unknown (-1).
			Line:   max(issue.Location.Line(), 1),
			Column: max(issue.Location.Column()+1, 1),
			Err:    errors.New(strings.ReplaceAll(message, "\n", " ")),
		})
	}
	return errs
}
