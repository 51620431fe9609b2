package faults

import (
	"fmt"
	"strings"
)

// Nearest returns the choice most similar to the word, or "" if none is similar.
func Nearest(word string, choices []string) string {
	best, distance := "", max(len(word)/3, 1)+1
	for _, choice := range choices {
		if d := editDistance(strings.ToLower(word), strings.ToLower(choice), distance); d < distance {
			best, distance = choice, d
		}
	}
	return best
}

// DidYouMean suggests the nearest choice, or else all of them.
func DidYouMean(word string, choices []string) string {
	if choice := Nearest(word, choices); choice != "" {
		return fmt.Sprintf("did you mean %q?", choice)
	}
	return "it can be " + strings.Join(choices, ", ")
}

// editDistance returns the number of insertions, deletions, replacements and swaps of
// neighbours that turn a into b, or limit if there are at least that many.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], limit)
}
