"""What an updater does with a feed: makes keys of changed rows, puts them on the queue, and confirms what is safe there."""
