package xdsclient

import (
	"fmt"
	"strings"
	"testing"
)

func TestErrorsForMembers(t *testing.T) {
	// An error for the collection as a whole wins over errors for its members, in one response in either
	// order, and until the server sends another one for it or a resource (xRFC TP3, "Protocol Behavior").
	const wins = `
		watch c=dir/*           -> stream; req +dir/*
		send 1 %s               -> ack 1; c member a: server error; c collection: server error
		send 2 dir/b?Internal   -> ack 2; c member b: server error
		send 3 dir/a=x          -> ack 3; c member a = x; c collection
	`
	tests := []transcriptTest{
		// An error for a member ends what the resource timer said of its collection.
		{name: "after the timer of the collection", over: "delta", steps: `
			watch c=dir/*         -> stream; req +dir/*
			wait 15s              -> c collection: does not exist
			send 1 dir/a?Internal -> ack 1; c member a: server error; c collection
		`},
		{name: "before one for the collection", over: "delta", steps: fmt.Sprintf(wins, "dir/a?Internal dir/*?PermissionDenied")},
		{name: "after one for the collection", over: "delta", steps: fmt.Sprintf(wins, "dir/*?PermissionDenied dir/a?Internal")},
	}
	const members = "LABEL member a: server error; LABEL member b: server error; "
	for code, follows := range map[string]string{"Internal": members, "PermissionDenied": members, "NotFound": ""} {
		answer := func(label string) string { return strings.ReplaceAll(follows+"LABEL collection", "LABEL", label) }
		tests = append(tests,
			// xRFC TP3, "Wildcard Subscriptions and Glob Collections" and "Protocol Behavior": an error for a
			// member is an answer for the glob collection, and cancels its resource timer.
			transcriptTest{name: "for all members: " + code, over: "delta", steps: fmt.Sprintf(`
				watch c=dir/*          -> stream; req +dir/*
				send 1 dir/a?%[1]s dir/b?%[1]s -> ack 1; %[2]s
				wait 1m
				watch late=dir/*       -> %[3]s
			`, code, answer("c"), answer("late")), then: func(x *transcript) {
				if got := x.c.Stats(); got.ServerErrors != 2 || got.Unasked != 0 {
					x.t.Errorf("Stats() is %+v, want 2 server errors and nothing unasked", got)
				}
			}})
	}
	runTranscripts(t, tests)
}

// gRFC A71: while the cache follows another server, errors for members that are no final answer are no
// reason to go back to the one above.
func TestErrorsForMembersAtAServerAboveTheOneInUse(t *testing.T) {
	var tests []transcriptTest
	for code, follows := range map[string]string{
		"Internal":         "",
		"PermissionDenied": "; low: closed; c member x: does not exist; c member a: server error",
		"NotFound":         "; low: closed; c member x: does not exist",
	} {
		tests = append(tests, transcriptTest{name: code, over: "delta", servers: []string{"", ""}, steps: fmt.Sprintf(`
			high: refuse
			watch c=dir/*           -> low: stream; low: req +dir/*
			low: send 1 dir/x=x     -> low: ack 1; c member x = x; c collection
			high: accept
			wait 1s                 -> high: stream; high: req +dir/*
			high: send 1 dir/a?%s   -> high: ack 1%s
		`, code, follows)})
	}
	runTranscripts(t, tests)
}
