package ads

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// gRFC A57, "Handling ADS Stream Termination": only a stream without an answer is a
// connectivity error, and only an answer ends one.
func TestLink(t *testing.T) {
	t.Parallel()
	lost, other := errors.New("lost"), errors.New("other")
	var l Link
	end := func(err error) func() any { return func() any { return l.Ended(err, "") } }
	opened := func() any { l.Opened(); return nil }
	restart := func() any { l.Restart(); return nil }
	answered := func() any { return l.Answered() }
	for i, step := range []struct {
		do                                          func() any
		want                                        any
		streaming, healthy, unreachable, isAnswered bool
		connected                                   bool
		failure                                     string
	}{
		{do: opened, streaming: true, healthy: true, connected: true},
		{do: restart, healthy: true, connected: true},
		{do: opened, streaming: true, healthy: true, connected: true},
		{do: answered, want: false, streaming: true, healthy: true, isAnswered: true, connected: true},
		{do: end(lost), want: EndAfterAnswer, healthy: true, connected: true},
		{do: end(lost), want: EndUnreachable, unreachable: true, failure: "lost"},
		{do: end(lost), want: EndSameReason, unreachable: true, failure: "lost"},
		{do: opened, streaming: true, failure: "lost"},
		{do: end(other), want: EndOtherReason, unreachable: true, failure: "other"},
		{do: opened, streaming: true, failure: "other"},
		{do: answered, want: true, streaming: true, healthy: true, isAnswered: true, connected: true},
		{do: end(lost), want: EndAfterAnswer, healthy: true, connected: true},
	} {
		if got := step.do(); got != step.want {
			t.Errorf("step %d returned %v, want %v", i, got, step.want)
		}
		if l.Streaming() != step.streaming || l.Healthy() != step.healthy || l.Unreachable() != step.unreachable ||
			l.Connected() != step.connected || l.Streaming() && l.Unanswered() == step.isAnswered || l.Closed() {
			t.Errorf("after step %d the link is %+v", i, l)
		}
		if (l.Failure() == nil) != (step.failure == "") || l.Failure() != nil && l.Failure().Error() != step.failure {
			t.Errorf("after step %d the failure is %v, want %q", i, l.Failure(), step.failure)
		}
	}
	if l.Close(); !l.Closed() || l.Streaming() {
		t.Errorf("a closed link is %+v", l)
	}
	if (&Link{}).Connected() {
		t.Error("a link that was not tried yet is connected")
	}
}

// A server that ends each connection before it speaks probably wants TLS, which is told with what to do about it.
func TestAdviceAboutTLS(t *testing.T) {
	t.Parallel()
	ended := status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: EOF"`)
	const told = "as one does that wants TLS or mTLS: use it"
	for _, tc := range []struct {
		name, advice string
		spoke        bool
		want         []End
		told         bool
	}{
		{"in plaintext", "use it", false, []End{EndUnreachable, EndSameReason, EndOtherReason, EndSameReason}, true},
		{"a server that restarts", "use it", true, []End{EndUnreachable, EndSameReason, EndSameReason, EndSameReason}, false},
		{"with TLS", "", false, []End{EndUnreachable, EndSameReason, EndSameReason, EndSameReason}, false},
	} {
		var l Link
		if tc.spoke {
			l.Opened()
			l.Answered()
			l.Ended(errors.New("lost"), tc.advice)
		}
		for i, want := range tc.want {
			if got := l.Ended(ended, tc.advice); got != want {
				t.Errorf("%s: end %d is %v, want %v", tc.name, i, got, want)
			}
		}
		if text := l.Failure().Error(); strings.Contains(text, told) != tc.told {
			t.Errorf("%s: the failure is %q", tc.name, text)
		}
	}
}
