package dynparam_test

import (
	"encoding/json"
	"fmt"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// A client that serves some shards and runs in production subscribes with these
// constraints; a control plane finds the variants that are for it.
func Example() {
	c, err := dynparam.New(
		dynparam.Require("shard", dynparam.InRanges(dynparam.Range{Min: 4, Max: 6}, dynparam.AtLeast(46))),
		dynparam.Exclude("env", dynparam.Value("test")),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c)

	for _, values := range []map[string]string{
		{"shard": "5", "env": "prod"},
		{"shard": "7", "env": "prod"},
		{"shard": "5", "env": "test"},
		{"env": "canary"}, // A key that the resource does not have matches.
	} {
		p, err := dynparam.NewParameters(values)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(p, c.Match(p))
	}
	// Output:
	// {env!=test, shard in [4-6] or [46-]}
	// {env=prod,shard=5} true
	// {env=prod,shard=7} false
	// {env=test,shard=5} false
	// {env=canary} true
}

// Of several variants that match, the one with the largest value is preferred. If TP2
// leaves the choice open, it is reported.
func ExampleConstraints_Choose() {
	c, err := dynparam.New(dynparam.Require("version", dynparam.InRanges(dynparam.AtMost(5))))
	if err != nil {
		fmt.Println(err)
		return
	}
	var variants []dynparam.Parameters
	for _, values := range []map[string]string{{"version": "3"}, {"version": "6"}, {"version": "5"}, {}} {
		p, err := dynparam.NewParameters(values)
		if err != nil {
			fmt.Println(err)
			return
		}
		variants = append(variants, p)
	}
	choice := c.Choose(variants)
	fmt.Println("chosen:", variants[choice.Index])
	if choice.Rival >= 0 {
		fmt.Println("another server might have chosen:", variants[choice.Rival])
	}
	// Output:
	// chosen: {version=5}
	// another server might have chosen: {}
}

// Constraints from a bootstrap file, with what a control plane demands on top.
func ExampleConstraints_Merge() {
	var own dynparam.Constraints
	err := json.Unmarshal([]byte(`{"key_constraints": {
		"env":   {"constraints": [{"value": "prod"}]},
		"shard": {"constraints": [{"integer_range_list": {"range": [{"min_value": 0, "max_value": 31}]}}]}
	}}`), &own)
	if err != nil {
		fmt.Println(err)
		return
	}
	demanded, err := dynparam.Exact(map[string]string{"env": "canary"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(own.Merge(demanded))
	// Output:
	// {env=canary, shard in [0-31]}
}

// Everything that is wrong is reported at once, each with its place.
func ExampleFaults() {
	var c dynparam.Constraints
	err := json.Unmarshal([]byte(`{"key_constraints": {
		"env":   {"constraints": []},
		"shard": {"constraints": [{"integer_range_list": {"range": [{"min_value": 9, "max_value": 5}]}}]}
	}}`), &c)
	fmt.Println(err)
	// Output:
	// dynamic parameter constraints: 2 errors:
	//   key_constraints["env"].constraints: expected a list with at least one constraint, found an empty list
	//   key_constraints["shard"].constraints[0].integer_range_list.range[0]: expected a min_value that is at most max_value, found 9 and 5
}
