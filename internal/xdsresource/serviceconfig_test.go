package xdsresource

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/matching"
)

// TestHedgingOf: gRFC A6, "Validation of hedgingPolicy", each rule with good and bad values.
func TestHedgingOf(t *testing.T) {
	t.Parallel()
	policy := func(p string) string { return `{"methodConfig":[{"name":[{}],"hedgingPolicy":` + p + `}]}` }
	for _, test := range []struct {
		name, config string
		want         string // of "/s/m", or a part of the error
	}{
		{"no hedging", `{"methodConfig":[{"name":[{}]}]}`, "none"},
		{"no hedging but the word", `{"methodConfig":[{"name":[{}],"timeout":"1s"}],"x":"hedgingPolicy"}`, "none"},
		{"maxAttempts MUST be specified", policy(`{}`), "methodConfig[0].hedgingPolicy.maxAttempts: must be an integer above 1"},
		{"maxAttempts MUST be greater than 1", policy(`{"maxAttempts":1}`), "must be an integer above 1"},
		{"maxAttempts MUST be a JSON integer", policy(`{"maxAttempts":2.5}`), "MaxAttempts"},
		{"maxAttempts MUST be a JSON integer, not a string", policy(`{"maxAttempts":"3"}`), "MaxAttempts"},
		{"the defaults", policy(`{"maxAttempts":2}`), "2 after 0s unless []"},
		{"values greater than 5 are treated as 5", policy(`{"maxAttempts":6}`), "5 after 0s unless []"},
		{"hedgingDelay", policy(`{"maxAttempts":4,"hedgingDelay":"0.5s"}`), "4 after 500ms unless []"},
		{"hedgingDelay MUST follow the JSON representation of Duration", policy(`{"maxAttempts":4,"hedgingDelay":"500ms"}`), `"500ms" is not a duration`},
		{"hedgingDelay must not be negative", policy(`{"maxAttempts":4,"hedgingDelay":"-1s"}`), "must not be negative"},
		{"codes in integer form, and as strings in any case", policy(`{"maxAttempts":4,"nonFatalStatusCodes":[14,"internal","Aborted"]}`), "4 after 0s unless [Aborted Internal Unavailable]"},
		{"codes MUST be an array", policy(`{"maxAttempts":4,"nonFatalStatusCodes":14}`), "NonFatalStatusCodes"},
		{"each MUST be a valid code", policy(`{"maxAttempts":4,"nonFatalStatusCodes":[99]}`), "99 is not a status code"},
		{"each MUST be a valid name", policy(`{"maxAttempts":4,"nonFatalStatusCodes":["nope"]}`), `"nope" is not a status code`},
		{"not null", policy(`{"maxAttempts":4,"nonFatalStatusCodes":[null]}`), "is not a status code"},
		{"only one of retryPolicy or hedgingPolicy", `{"methodConfig":[{"name":[{}],"retryPolicy":{},"hedgingPolicy":{"maxAttempts":4}}]}`, "only one of them"},
		{"the name of the method wins", `{"methodConfig":[{"name":[{}],"hedgingPolicy":{"maxAttempts":2}},{"name":[{"service":"s"}]},
			{"name":[{"service":"t"},{"service":"s","method":"m"}],"timeout":"2s","hedgingPolicy":{"maxAttempts":3}}]}`, "3 after 0s unless [] in 2s"},
		{"the name of the service is next", `{"methodConfig":[{"name":[{}],"hedgingPolicy":{"maxAttempts":2}},{"name":[{"service":"s"}]}]}`, "not hedged"},
		{"the default is last", `{"methodConfig":[{"name":[{}],"hedgingPolicy":{"maxAttempts":2}},{"name":[{"service":"other"}]}]}`, "2 after 0s unless []"},
		{"another service's", `{"methodConfig":[{"name":[{"service":"other"}],"hedgingPolicy":{"maxAttempts":2}}]}`, "not hedged"},
		{"throttling", `{"retryThrottling":{"maxTokens":10,"tokenRatio":0.5466},"methodConfig":[{"name":[{}],"hedgingPolicy":{"maxAttempts":2}}]}`, "2 after 0s unless [] throttled 10/0.546"},
	} {
		vh, err := HedgingOf(test.config)
		got := "none"
		switch {
		case err != nil:
			got = err.Error()
		case vh != nil:
			got = "not hedged"
			route := vh.Route(matching.RPC{Method: "/s/m"})
			if p := route.Retry; p != nil {
				on := []codes.Code{}
				for _, c := range []codes.Code{codes.Aborted, codes.Internal, codes.Unavailable} {
					if p.Codes.Has(c) {
						on = append(on, c)
					}
				}
				got = fmt.Sprintf("%d after %v unless %v", p.MaxAttempts, p.Hedging.Delay, on)
			}
			if d := route.MaxStreamDuration; d != nil {
				got += fmt.Sprint(" in ", *d)
			}
			if l := vh.HedgeThrottling; l != nil {
				got += fmt.Sprintf(" throttled %v/%v", l.MaxTokens, l.TokenRatio)
			}
		}
		if err == nil && got != test.want || err != nil && !strings.Contains(got, test.want) {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
