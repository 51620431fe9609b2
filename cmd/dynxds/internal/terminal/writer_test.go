package terminal

import (
	"bytes"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestInvisibleCharactersAreEscaped(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"plain\ttext\n", "plain\ttext\n"},
		{"wörds\u00a0and 文字 €", "wörds\u00a0and 文字 €"},
		{"\x1b[31m\x7f\u009b\u202e\u200b\r", `\u001b[31m\u007f\u009b\u202e\u200b\u000d`},
		{"\U000e0041", `\udb40\udc41`},
		{"a\xffb\xe2\x80", "a\ufffdb\ufffd"},
		{"", ""},
	} {
		// It makes no difference how the text is divided.
		for size := 1; size <= len(test.text)+1; size++ {
			var out bytes.Buffer
			v := New(&out)
			for rest := test.text; rest != ""; {
				n := min(size, len(rest))
				if wrote, err := v.Write([]byte(rest[:n])); wrote != n || err != nil {
					t.Fatalf("Write of %q: %d, %v", rest[:n], wrote, err)
				}
				rest = rest[n:]
			}
			xdstest.NoError(t, v.Close())
			if got := strings.ReplaceAll(out.String(), "\ufffd\ufffd", "\ufffd"); got != test.want {
				t.Errorf("%q by %d bytes: got %q, want %q", test.text, size, got, test.want)
			}
		}
	}
}

// On a terminal, words of states have colours; what was escaped stays so, and nothing else changes.
func TestPaint(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"  Cluster a: NACKED, version 1\n": "  Cluster a: \x1b[31mNACKED\x1b[0m, version 1\n",
		"READY, IDLE\n":                    "\x1b[32mREADY\x1b[0m, \x1b[33mIDLE\x1b[0m\n",
		"+ Listener READY\n  + b\n":        "\x1b[32m+ Listener READY\x1b[0m\n  + b\n",
		"0  taken by 100%  [a.yaml:1]\n":   "0  \x1b[32mtaken by\x1b[0m 100%  \x1b[36m[a.yaml:1]\x1b[0m\n",
		"\x1b[31mALREADY\n":                `\u001b[31mALREADY` + "\n",
	} {
		var out bytes.Buffer
		w := &Writer{to: &out, colours: palette}
		_, err := w.Write([]byte(text))
		xdstest.NoError(t, err)
		xdstest.Equal(t, text, want, out.String())
	}
}

// A text that is drawn again takes the place of the last one, and does not scroll.
func TestRedraw(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	window := size{width: 10, height: 4}
	w := &Writer{to: &out, window: func() size { return window }}
	draw := func(text, want string) {
		t.Helper()
		out.Reset()
		xdstest.NoError(t, w.Redraw(text))
		xdstest.Equal(t, "drawn", want, out.String())
	}
	draw("a\nb\n", "\x1b[Ja\nb\n")
	draw("\x1b[2J\tc\n", "\x1b[2A\x1b[J\\u001b[2J…\n")
	draw("1\n2\n3\n4\n", "\x1b[1A\x1b[J1\n2\n… 2 more …\n")
	_, err := w.Write([]byte("other\n"))
	xdstest.NoError(t, err)
	draw("d", "\x1b[Jd\n")
	// In a window of another size the lines of before may take more or fewer lines.
	window = size{width: 5, height: 2}
	draw("123456\n7\n", "\x1b[J… 2 …\n")
	window.height = 3
	draw("123456\n7\n", "\x1b[J1234…\n7\n")
	draw("8", "\x1b[2A\x1b[J8\n")
	if !w.Redraws() || New(&out).Redraws() {
		t.Error("only a terminal can be drawn again")
	}
}

// A line takes as many columns as the terminal gives its characters.
func TestCut(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"12345": "12345", "123456": "1234…", "文字文": "文字…", "文字": "文字", "a文字": "a文字", "ab文字": "ab文…", "e\u0301e\u0301e\u0301e\u0301e\u0301": "e\u0301e\u0301e\u0301e\u0301e\u0301",
		"\U0001F600\U0001F600\U0001F600": "\U0001F600\U0001F600…", "": "",
	} {
		if got := cut(line, 5); got != want {
			t.Errorf("%q is cut to %q, want %q", line, got, want)
		}
	}
}
