"""The paper's experiments. Studies train and write raw results; figures read them and draw; neither does the other."""
