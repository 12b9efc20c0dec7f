package filter

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
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
	// costLimit bounds one evaluation, in units of CEL's cost model: about one for each node evaluated or element
	// visited, and one for every ten characters of a string. It is what Kubernetes' admission policies allow one
	// expression, and some 0.1 s. A single function call is charged after it was made.
	costLimit = 1_000_000
	// maxRange bounds what lists.range may allocate in one step, before its cost is counted.
	maxRange = 10_000
)

// concatenation charges for a + whose operands have no type before they are evaluated, as in
// object.metadata.name + "x": CEL's own model knows the size of a concatenation only where the types are known, and
// would let a text double itself for free. It implements cost.ActualCostEstimator.
type concatenation struct{}

// CallCost returns nil for every call that CEL's own model is to charge for.
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
	units := uint64(1 + size/10) // as for a + with known types
	return &units
}

// env compiles expressions.
type env struct{ cel *cel.Env }

func newEnv() (*env, error) {
	e, err := cel.NewEnv(
		cel.Variable(varObject, cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable(varOld, cel.DynType),
		cel.Variable(varOperation, cel.StringType),
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
		// Literals that can't be right are mistakes in the configuration, not failures on each object.
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals()),
	)
	if err != nil {
		return nil, err
	}
	return &env{cel: e}, nil
}

// compile makes a program of the text and reports whether the text speaks of the change (old, operation) and
// not of the object alone. Mistakes have Line, Column and Err set.
func (e *env) compile(text string) (program cel.Program, onChange bool, mistakes []*RuleError) {
	checked, issues := e.cel.Compile(text)
	if issues.Err() != nil {
		return nil, false, issuesToErrors(issues)
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, false, []*RuleError{{Line: 1, Column: 1, Err: wrongType(t)}}
	}
	program, err := e.cel.Program(checked,
		cel.EvalOptions(cel.OptOptimize), cel.CostTracking(concatenation{}), cel.CostLimit(costLimit))
	if err != nil {
		return nil, false, []*RuleError{{Line: 1, Column: 1, Err: err}}
	}
	free := make(map[string]bool)
	freeVariables(checked.NativeRep().Expr(), nil, free)
	return program, free[varOld] || free[varOperation], nil
}

func wrongType(t *cel.Type) error {
	if t.Kind() == cel.OpaqueKind && t.TypeName() == "optional_type" {
		return fmt.Errorf("the result must be true or false, not of type %s: end it with .orValue(false) or .hasValue()", cel.FormatCELType(t))
	}
	return fmt.Errorf("the result must be true or false, not of type %s", cel.FormatCELType(t))
}

func issuesToErrors(issues *cel.Issues) []*RuleError {
	var errs []*RuleError
	for _, issue := range issues.Errors() {
		// CEL adds the container, an idea that means nothing here, to some messages.
		message := strings.TrimSuffix(issue.Message, " (in container '')")
		errs = append(errs, &RuleError{
			// CEL counts columns from 0, and has -1 for a few mistakes of which it does not know the place.
			Line:   max(issue.Location.Line(), 1),
			Column: max(issue.Location.Column()+1, 1),
			Err:    errors.New(strings.ReplaceAll(message, "\n", " ")),
		})
	}
	return errs
}

// freeVariables collects the variables of the environment that e speaks of. Those that a macro binds, as x in
// object.spec.containers.all(x, ...), are not among them, even if they are called like one.
func freeVariables(e ast.Expr, bound []string, free map[string]bool) {
	switch e.Kind() {
	case ast.IdentKind:
		// The checker puts a dot before a name of the environment that a macro's variable hides.
		name, global := strings.CutPrefix(e.AsIdent(), ".")
		if global || !slices.Contains(bound, name) {
			free[name] = true
		}
	case ast.SelectKind:
		freeVariables(e.AsSelect().Operand(), bound, free)
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			freeVariables(call.Target(), bound, free)
		}
		for _, arg := range call.Args() {
			freeVariables(arg, bound, free)
		}
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			freeVariables(element, bound, free)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			freeVariables(entry.AsMapEntry().Key(), bound, free)
			freeVariables(entry.AsMapEntry().Value(), bound, free)
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			freeVariables(field.AsStructField().Value(), bound, free)
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		freeVariables(c.IterRange(), bound, free)
		freeVariables(c.AccuInit(), bound, free)
		outer := append(slices.Clip(bound), c.AccuVar())
		inner := append(slices.Clip(outer), c.IterVar(), c.IterVar2())
		freeVariables(c.LoopCondition(), inner, free)
		freeVariables(c.LoopStep(), inner, free)
		freeVariables(c.Result(), outer, free)
	}
}
