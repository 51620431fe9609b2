package revise

import (
	"slices"
	"strings"
)

// maxCompared bounds the product of the numbers of lines that are compared; of longer texts all lines between
// the first and the last difference count as different.
const maxCompared = 1 << 22

// around is how many equal lines are shown before and after a difference.
const around = 2

// Lines returns the lines in which two versions of a document differ: "- " or "+ " and the line, with a few
// equal lines around them, after two spaces, and "…" for those left out. nil is a document that is not there.
func Lines(before, after *string) []string {
	old, now := linesOf(before), linesOf(after)
	var start, end []string
	for len(old) > 0 && len(now) > 0 && old[0] == now[0] {
		start, old, now = append(start, "  "+old[0]), old[1:], now[1:]
	}
	for len(old) > 0 && len(now) > 0 && old[len(old)-1] == now[len(now)-1] {
		end = append(end, "  "+old[len(old)-1])
		old, now = old[:len(old)-1], now[:len(now)-1]
	}
	slices.Reverse(end)
	return shorten(slices.Concat(start, edited(old, now), end))
}

func linesOf(text *string) []string {
	if text == nil || *text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(*text, "\n"), "\n")
}

// edited marks the lines of two texts, with as many as possible in common.
func edited(old, now []string) (marked []string) {
	var common [][]int32 // by what is left of both
	if len(old)*len(now) <= maxCompared {
		common = make([][]int32, len(old)+1)
		common[len(old)] = make([]int32, len(now)+1)
		for i := len(old) - 1; i >= 0; i-- {
			common[i] = make([]int32, len(now)+1)
			for j := len(now) - 1; j >= 0; j-- {
				if old[i] == now[j] {
					common[i][j] = common[i+1][j+1] + 1
				} else {
					common[i][j] = max(common[i+1][j], common[i][j+1])
				}
			}
		}
	}
	i, j := 0, 0
	for i < len(old) || j < len(now) {
		switch {
		case common != nil && i < len(old) && j < len(now) && old[i] == now[j]:
			marked = append(marked, "  "+old[i])
			i, j = i+1, j+1
		case i < len(old) && (common == nil || j == len(now) || common[i+1][j] >= common[i][j+1]):
			marked = append(marked, "- "+old[i])
			i++
		default:
			marked = append(marked, "+ "+now[j])
			j++
		}
	}
	return marked
}

// shorten leaves out equal lines that are not near a difference.
func shorten(marked []string) []string {
	near := make([]bool, len(marked))
	for i, line := range marked {
		if line[0] == ' ' {
			continue
		}
		for k := max(0, i-around); k <= min(len(marked)-1, i+around); k++ {
			near[k] = true
		}
	}
	var lines []string
	for i, line := range marked {
		switch {
		case near[i]:
			lines = append(lines, line)
		case i == 0 || near[i-1]:
			lines = append(lines, "…")
		}
	}
	return lines
}
