package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const page = "Text.\n" +
	"```console\n$ echo one > out\n> echo two >> out\none\n```\n" +
	"```go\npackage none\n```\n" +
	"<!-- doc: file hello.txt -->\n<!-- doc: in sub -->\n```json\n{\"it\": 's'}\n```\n" +
	"<!-- doc: in sub -->\n<!-- doc: also echo unseen >> ../out -->\n```sh\ncat hello.txt >> ../out\n```\n" +
	"<!-- doc: with that -->\n```sh\necho that >> out\n```\n<!-- doc: with this -->\n```sh\necho this >> out\n```\n" +
	"<!-- doc: skip, it never ends -->\n```sh\nexit 1\n```\n"

func TestCommandsAreCarriedOut(t *testing.T) {
	t.Parallel()
	steps, err := parse(page, "this")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := run(context.Background(), dir, script("page.md", steps)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "one\ntwo\nunseen\n{\"it\": 's'}\nthis\n"; string(got) != want {
		t.Errorf("the commands wrote %q, want %q", got, want)
	}
	if last := steps[len(steps)-1]; last.skip != "it never ends" || last.line != 29 {
		t.Errorf("the last block is %+v, want one of line 21 that is skipped", last)
	}
}

func TestACommandThatFailsIsReported(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ page, want string }{
		"at the end":    {"```sh\necho before; false\n```", "before"},
		"in between":    {"```sh\nfalse\necho after\n```", "exit status 1"},
		"in a pipe":     {"```sh\nfalse | cat\n```", "exit status 1"},
		"unknown name":  {"```sh\necho $NO_SUCH_NAME\n```", "NO_SUCH_NAME"},
		"where it is":   {"\n\n```sh\nfalse\n```", "page.md:3"},
		"it never ends": {"```sh\nsleep 100\n```", "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps, err := parse(test.page, "")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			err = run(ctx, t.TempDir(), script("page.md", steps))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestFaultyComments(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ page, want string }{
		"unknown":        {"<!-- doc: jump, high -->\n```sh\n```", "line 1: doc: jump is unknown"},
		"no reason":      {"<!-- doc: skip -->\n```sh\n```", "is not complete"},
		"no block":       {"<!-- doc: skip, never -->\nText.", "line 2: there is no code block"},
		"without an end": {"```sh\ntrue\n", "line 1: the code block does not end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := parse(test.page, ""); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}
