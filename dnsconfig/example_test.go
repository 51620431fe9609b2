package dnsconfig_test

import (
	"fmt"

	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/dnsconfig"
)

// The steps by themselves: the service config that the TXT records of a name have for a client.
// A channel does the same for a target of the scheme "dnsconfig".
func Example() {
	// What DNS has under dnsconfig.Prefix + "echo.example.com", by net.LookupTXT.
	records := []string{
		"v=spf1 -all",
		`grpc_config=[` +
			`{"clientLanguage": ["go"], "percentage": 10, "serviceConfig": {"loadBalancingConfig": [{"round_robin": {}}]}},` +
			`{"percentage": "all", "serviceConfig": {}},` +
			`{"serviceConfig": {}}]`,
	}
	value, found, err := dnsconfig.Find(records)
	fmt.Println(found, err)
	list, err := dnsconfig.Parse(value, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, void := range list.Void {
		fmt.Printf("choice %d is void: %v\n", void.Index, void.Reason)
	}
	for _, draw := range []int{9, 10} {
		choice := list.Choose(dnsconfig.Client{Language: "go", Draw: draw})
		fmt.Printf("draw %d: choice %d: %s\n", draw, choice.Index, choice.ServiceConfig)
	}
	// Output:
	// true <nil>
	// choice 1 is void: percentage: expected an integer from 0 to 100, written without sign, fraction, exponent or quotes; found "\"all\""
	// draw 9: choice 0: {"loadBalancingConfig": [{"round_robin": {}}]}
	// draw 10: choice 2: {}
}

// The registered scheme with other options, and a function that sees each look-up.
func ExampleNewBuilder() {
	resolver.Register(dnsconfig.NewBuilder(dnsconfig.Options{
		Hostname: "build-1",
		OnResult: func(r *dnsconfig.Result) {
			if r.Outcome == dnsconfig.OutcomeFaulty {
				fmt.Println(r.Name, r.Err)
			}
		},
	}))
	fmt.Println(resolver.Get("dnsconfig").Scheme())
	// Output: dnsconfig
}
