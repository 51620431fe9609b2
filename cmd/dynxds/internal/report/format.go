package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/scenario"
)

// textWidth is where sentences are wrapped: it fits the narrowest terminal in
// use.
const textWidth = 78

// wrap breaks text into lines of at most width columns, if its words allow it,
// the second line and those after it indented.
func wrap(text string, width int, indent string) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// percent is a share with one digit.
func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// count groups an integer's digits by thousands.
func count(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// counted is "1 RPC" or "2 RPCs".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

// milliseconds is a duration with two significant digits or more.
func milliseconds(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms == 0:
		return "-"
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f ms", ms)
	default:
		return fmt.Sprintf("%.0f ms", ms)
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func speed(s scenario.Speed) string {
	return fmt.Sprintf("%s RPC/s   p50 %s   p99 %s", count(int(s.Rate)), milliseconds(s.P50), milliseconds(s.P99))
}

// heading is a step's.
func heading(a scenario.Announcement) string {
	return fmt.Sprintf("Step %d of %d: %s", a.Step, a.Steps, a.Name)
}

// introduction says what runs.
func introduction(s SetUp) []string {
	lines := []string{
		fmt.Sprintf("A control plane, %d backends and a client, all in this process, for %v.", len(s.Backends), s.Duration),
		"",
		"  client         " + s.Target,
		"  bootstrap      GRPC_XDS_BOOTSTRAP=" + s.Bootstrap,
		"  control plane  " + s.ControlPlane,
	}
	for i, b := range s.Backends {
		label := "               "
		if i == 0 {
			label = "backends       "
		}
		lines = append(lines, fmt.Sprintf("  %s%s   %s   cluster %q", label, b.Address, b.Name, b.Cluster))
	}
	return lines
}

// verdict says how a step ended, apart from its table.
func verdict(r scenario.Result, s style) []string {
	const observed, missed = "Observed", "NOT OBSERVED"
	if !r.Observed() {
		lines := wrap(missed+": "+strings.Join(r.Faults, "; ")+".", textWidth, "  ")
		lines[0] = s.bad(missed) + strings.TrimPrefix(lines[0], missed)
		return lines
	}
	text := fmt.Sprintf("%s: %s from the change to the first RPC that shows it. %s", observed, milliseconds(r.Arrived), failures(r))
	lines := wrap(text, textWidth, "  ")
	lines[0] = s.good(observed) + strings.TrimPrefix(lines[0], observed)
	return lines
}

// failures counts a step's RPCs.
func failures(r scenario.Result) string {
	text := counted(r.Answered, "RPC") + " answered, "
	switch {
	case r.Failed == 0:
		return text + "none failed."
	case r.Failed == r.Excused:
		return text + count(r.Failed) + " failed, in flight on the connection that broke."
	default:
		return text + count(r.Failed) + " failed."
	}
}

// ending is the last word.
func ending(sum scenario.Summary, s style) []string {
	paint, opening := s.good, fmt.Sprintf("All %d steps observed", sum.Steps)
	if sum.Err != nil {
		paint, opening = s.bad, fmt.Sprintf("Only %d of %d steps observed", sum.Observed, sum.Steps)
		if sum.Observed == sum.Steps {
			opening = "All steps observed, but with faults"
		}
	}
	text := fmt.Sprintf("%s, in %s. %s answered, %s failed", opening, seconds(sum.Elapsed), counted(sum.Answered, "RPC"), count(sum.Failed))
	switch {
	case sum.Excused == 0:
	case sum.Excused == sum.Failed:
		text += " (in flight when the backend stopped)"
	default:
		text += fmt.Sprintf(" (%s of them in flight when the backend stopped)", count(sum.Excused))
	}
	lines := wrap(text+".", textWidth, "")
	lines[0] = paint(opening) + strings.TrimPrefix(lines[0], opening)
	return lines
}
